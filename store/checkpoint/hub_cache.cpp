#include "store/checkpoint/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "store/base/text.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

/// Longer names are refused by the hub.
constexpr std::size_t kMaxNameBytes = 96;
constexpr std::uint64_t kMaxRefBytes = 256;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_directory(const FileSystem& files, const std::string& path) {
  const auto info = files.info_followed(path);
  return info.has_value() && info->type == FileType::kDirectory;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

/// One part of an id, as huggingface_hub's validate_repo_id demands.
bool is_id_part(std::string_view part) {
  const auto at_edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kMaxNameBytes && !at_edge(part.front()) &&
         !at_edge(part.back()) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), is_name_character);
}

/// A branch may be "refs/pr/1"; no part of it leads out of the folder.
bool is_revision(std::string_view text) {
  if (text.empty() || text.size() > kMaxRefBytes) return false;
  while (true) {
    const std::size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    if (part.empty() || part.front() == '.' ||
        !std::all_of(part.begin(), part.end(), is_name_character)) {
      return false;
    }
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

class Search {
 public:
  Search(const FileSystem& files, const HubModel& model) : files_(files), model_(model) {}

  std::optional<std::string> look_in(const std::string& place) {
    // A local folder tells no revision: it holds whatever was fetched.
    if (auto plain = join_path(place, model_.id); holds_model(plain)) return plain;
    std::string cached = "models--";
    for (const char c : model_.id) cached += c == '/' ? std::string("--") : std::string(1, c);
    for (const std::string& hub : {place, join_path(place, "hub")}) {
      if (auto found = snapshot_of(join_path(hub, cached))) return found;
    }
    return std::nullopt;
  }

  const std::string& looked() const { return looked_; }

 private:
  bool holds_model(const std::string& folder) {
    if (files_.info_followed(join_path(folder, model_.needed)).has_value()) return true;
    looked_ += "  " + folder;
    if (is_directory(files_, folder)) looked_ += " (without " + model_.needed + ")";
    looked_ += '\n';
    return false;
  }

  std::optional<std::string> snapshot_of(const std::string& cached) {
    const std::string snapshots = join_path(cached, "snapshots");
    if (!is_directory(files_, snapshots)) {
      looked_ += "  " + snapshots + "\n";
      return std::nullopt;
    }
    if (const auto named = read_file(files_, join_path(join_path(cached, "refs"), model_.revision),
                                     kMaxRefBytes)) {
      const std::string commit = named->substr(0, named->find_first_of(" \r\n"));
      const std::string folder = join_path(snapshots, commit);
      const bool one_name = is_revision(commit) && commit.find('/') == std::string::npos;
      if (one_name && holds_model(folder)) return folder;
    }
    if (model_.revision != "main") {
      const std::string folder = join_path(snapshots, model_.revision);
      return holds_model(folder) ? std::optional(folder) : std::nullopt;
    }
    return newest_in(snapshots);
  }

  std::optional<std::string> newest_in(const std::string& snapshots) {
    const auto entries = files_.list(snapshots);
    if (!entries.has_value()) return std::nullopt;
    std::optional<std::string> newest;
    std::int64_t newest_mtime = 0;
    for (const DirectoryEntry& entry : *entries) {
      const std::string folder = join_path(snapshots, entry.name);
      const auto info = files_.info_followed(folder);
      if (!info.has_value() || (newest && info->mtime_ns <= newest_mtime)) continue;
      if (!holds_model(folder)) continue;
      newest = folder;
      newest_mtime = info->mtime_ns;
    }
    return newest;
  }

  const FileSystem& files_;
  const HubModel& model_;
  std::string looked_;
};

}  // namespace

std::vector<std::string> hub_places(const std::string& data_dir) {
  std::vector<std::string> places;
  if (!data_dir.empty()) places.push_back(data_dir);
  std::string home = environment("HF_HOME");
  if (home.empty()) {
    std::string cache = environment("XDG_CACHE_HOME");
    if (cache.empty() && !environment("HOME").empty()) {
      cache = join_path(environment("HOME"), ".cache");
    }
    if (!cache.empty()) home = join_path(cache, "huggingface");
  }
  for (const char* const name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (std::string cache = environment(name); !cache.empty()) {
      places.push_back(std::move(cache));
      return places;  // it takes the place of the usual one
    }
  }
  if (!home.empty()) places.push_back(join_path(home, "hub"));
  return places;
}

bool is_hub_id(std::string_view name) {
  if (name.ends_with(".git")) return false;
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return is_id_part(name);
  return is_id_part(name.substr(0, slash)) && is_id_part(name.substr(slash + 1));
}

std::string hub_download_command(const std::string& id, const std::string& revision) {
  return "hf download " + id + (revision == "main" ? "" : " --revision " + revision);
}

Result<std::string> find_hub_model(const FileSystem& files, const HubModel& model,
                                   const std::vector<std::string>& places) {
  if (!is_hub_id(model.id)) {
    return make_error(ErrorCode::kInvalidArgument,
                      quote_name(model.id) + ": is neither a folder nor a model's id on the hub");
  }
  if (!is_revision(model.revision)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        model.id + ": revision " + quote_name(model.revision) + " is no branch, tag or commit");
  }
  Search search(files, model);
  for (const std::string& place : places) {
    if (auto found = search.look_in(place)) return *std::move(found);
  }
  return with_lines(
      make_error(ErrorCode::kNotFound, model.id + ": is not on this machine; looked for"),
      search.looked() + "fetch it with: " + hub_download_command(model.id, model.revision));
}

Result<std::string> find_model(const FileSystem& files, const HubModel& model,
                               const std::vector<std::string>& places) {
  if (is_directory(files, model.id)) return model.id;
  return find_hub_model(files, model, places);
}

}  // namespace evalcar::checkpoint
