#include "evaluator/tasks/data_location.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "store/base/text.h"

namespace evalcar::tasks {
namespace {

constexpr std::uint64_t kMostReadmeBytes = std::uint64_t{4} << 20U;
constexpr std::size_t kMostFiles = 200'000;
constexpr int kMostLevels = 6;

bool is_directory(const FileSystem& files, const std::string& path) {
  const auto info = files.info_followed(path);
  return info && info->type == FileType::kDirectory;
}

bool is_data_file(std::string_view name) {
  return name.ends_with(".parquet") || name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

// All files below the folder, as relative paths, sorted. Hidden entries (.cache, .git) are left
// out.
Status list_below(const FileSystem& files, const std::string& folder, const std::string& prefix,
                  int level, std::vector<std::string>& out) {
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files.list(folder, kMostFiles));
  for (const DirectoryEntry& entry : entries) {
    if (entry.name.starts_with(".")) continue;
    const std::string path = join_path(folder, entry.name);
    const std::string relative = prefix.empty() ? entry.name : prefix + "/" + entry.name;
    if (entry.type == FileType::kDirectory ||
        (entry.type == FileType::kSymlink && is_directory(files, path))) {
      if (level < kMostLevels)
        EVALCAR_RETURN_IF_ERROR(list_below(files, path, relative, level + 1, out));
    } else if (is_data_file(entry.name)) {
      out.push_back(relative);
    }
    if (out.size() > kMostFiles)
      return make_error(ErrorCode::kUnavailable, folder + ": more than 200000 files");
  }
  std::sort(out.begin(), out.end());
  return {};
}

// `lmms-lab/X` is also looked for as `lmms-lab-encoder/X`, and the other way round.
std::vector<std::string> synonyms(const std::string& data_set) {
  std::vector<std::string> result = {data_set};
  static constexpr std::array<std::string_view, 2> kOrganisations = {"lmms-lab/",
                                                                     "lmms-lab-encoder/"};
  for (std::size_t i = 0; i < 2; ++i) {
    if (data_set.starts_with(kOrganisations[i])) {
      result.push_back(std::string(kOrganisations[1 - i]) +
                       data_set.substr(kOrganisations[i].size()));
    }
  }
  return result;
}

std::string hub_cache_name(const std::string& data_set) {
  std::string name = "datasets--";
  for (const char c : data_set) name += c == '/' ? std::string("--") : std::string(1, c);
  return name;
}

// snapshots/<rev> that refs/main names, else the newest one.
std::optional<std::string> snapshot_of(const FileSystem& files, const std::string& cached) {
  const std::string snapshots = join_path(cached, "snapshots");
  if (const auto revision = read_file(files, join_path(cached, "refs/main"), 256)) {
    std::string name = *revision;
    while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
    const std::string path = join_path(snapshots, name);
    if (name.find('/') == std::string::npos && name != ".." && is_directory(files, path))
      return path;
  }
  const auto entries = files.list(snapshots, kMostFiles);
  if (!entries) return std::nullopt;
  std::optional<std::string> newest;
  std::int64_t newest_mtime = 0;
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(snapshots, entry.name);
    const auto info = files.info_followed(path);
    if (info && info->type == FileType::kDirectory && (!newest || info->mtime_ns > newest_mtime)) {
      newest = path;
      newest_mtime = info->mtime_ns;
    }
  }
  return newest;
}

Result<std::string> find_folder(const FileSystem& files, const std::string& data_set,
                                const std::string& data_dir) {
  std::string looked;
  for (const std::string& name : synonyms(data_set)) {
    const std::string plain = join_path(data_dir, name);
    if (is_directory(files, plain)) return plain;
    looked += "  " + plain + "\n";
    for (const std::string& hub : {data_dir, join_path(data_dir, "hub")}) {
      const std::string cached = join_path(hub, hub_cache_name(name));
      if (const auto snapshot = snapshot_of(files, cached)) return *snapshot;
      looked += "  " + join_path(cached, "snapshots") + "\n";
    }
  }
  return with_lines(
      make_error(ErrorCode::kNotFound, "data set " + data_set + " is not in " +
                                           (data_dir.empty() ? "\"\"" : data_dir) + "; looked for"),
      looked + "fetch it with: " + download_command(data_set, data_dir));
}

// Patterns of a configuration's split in the front matter of README.md; empty if it says nothing
// about it.
struct Configs {
  std::vector<std::string> names;
  std::vector<std::string> patterns;
};

void add_patterns(const YAML::Node& node, std::vector<std::string>& out) {
  if (node.IsScalar()) {
    out.push_back(node.as<std::string>());
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (item.IsScalar()) out.push_back(item.as<std::string>());
    }
  }
}

void read_config(const YAML::Node& config, const std::string& split, Configs& out) {
  const YAML::Node data_files = config["data_files"];
  if (data_files.IsMap()) {
    if (data_files[split]) add_patterns(data_files[split], out.patterns);
  } else if (data_files.IsSequence()) {
    for (const YAML::Node& item : data_files) {
      if (item.IsMap() && item["split"] && item["split"].as<std::string>("") == split &&
          item["path"]) {
        add_patterns(item["path"], out.patterns);
      }
    }
  }
}

// An anchor (&name at the start of a value); without one there is no alias. They are refused: a few
// lines of them can stand for gigabytes.
bool has_anchor(std::string_view yaml) {
  for (std::size_t at = yaml.find('&'); at != std::string_view::npos; at = yaml.find('&', at + 1)) {
    const char before = at == 0 ? '\n' : yaml[at - 1];
    const bool starts_value = before == ' ' || before == '\n' || before == '[' || before == ',';
    const bool named =
        at + 1 < yaml.size() && std::isalnum(static_cast<unsigned char>(yaml[at + 1])) != 0;
    if (starts_value && named) return true;
  }
  return false;
}

Result<Configs> read_readme(const FileSystem& files, const std::string& folder,
                            const std::string& config, const std::string& split) {
  Configs out;
  const std::string path = join_path(folder, "README.md");
  const auto text = read_file(files, path, kMostReadmeBytes);
  if (!text) {
    if (text.error().code == ErrorCode::kNotFound) return out;
    return text.error();
  }
  if (!text->starts_with("---\n")) return out;
  const std::size_t end = text->find("\n---", 3);
  if (end == std::string::npos) return out;
  const std::string front = text->substr(4, end + 1 - 4);
  if (has_anchor(front))
    return make_error(ErrorCode::kCorruption, path + ": YAML anchors are not read");
  try {
    const YAML::Node root = YAML::Load(front);
    const YAML::Node configs = root["configs"];
    if (!configs || !configs.IsSequence()) return out;
    std::optional<YAML::Node> chosen;
    for (const YAML::Node& item : configs) {
      if (!item.IsMap() || !item["config_name"]) continue;
      const auto name = item["config_name"].as<std::string>("");
      out.names.push_back(name);
      const bool is_default =
          name == "default" || (item["default"] && item["default"].as<bool>(false));
      if (config.empty() ? is_default : name == config) chosen = item;
    }
    if (!chosen && config.empty() && configs.size() == 1) chosen = configs[0];
    if (!chosen) {
      std::string known;
      for (const std::string& name : out.names) known += (known.empty() ? "" : ", ") + name;
      return make_error(ErrorCode::kInvalidArgument,
                        path + ": no configuration " +
                            (config.empty() ? "\"default\"" : "\"" + config + "\"") +
                            "; there are " + known + " (set [data] config)");
    }
    read_config(*chosen, split, out);
  } catch (const YAML::Exception& e) {
    return make_error(ErrorCode::kCorruption, path + ": front matter is not YAML: " + e.what());
  }
  return out;
}

std::vector<std::string> usual_patterns(const std::string& config, const std::string& split) {
  std::vector<std::string> folders;
  if (!config.empty()) folders.push_back(config + "/");
  folders.insert(folders.end(), {"data/", "", "default/"});
  std::vector<std::string> result;
  for (const std::string& folder : folders) {
    for (const char* ending : {"-*-of-*.parquet", ".parquet", "-*.parquet", "-*-of-*.jsonl",
                               ".jsonl", ".ndjson", "/*.parquet"}) {
      result.push_back(folder + split + ending);
    }
  }
  return result;
}

// "<name>-00002-of-00006.parquet": all six must be there, and none of another split of <name>,
// whose documents would count twice.
Status check_shards(const std::vector<std::string>& found, const std::string& folder) {
  std::map<std::string, std::map<unsigned, std::set<unsigned>>> seen;  // stem -> count -> indices
  for (const std::string& path : found) {
    const std::size_t of = path.rfind("-of-");
    if (of == std::string::npos || of < 6) continue;
    unsigned index = 0;
    unsigned count = 0;
    const char* begin = path.data();
    const auto a = std::from_chars(begin + of - 5, begin + of, index);
    const auto b = std::from_chars(begin + of + 4, begin + path.size(), count);
    if (a.ec != std::errc() || b.ec != std::errc() || a.ptr != begin + of) continue;
    seen[path.substr(0, of - 5)][count].insert(index);
  }
  for (const auto& [stem, counts] : seen) {
    const auto& [count, indices] = *counts.begin();
    if (counts.size() > 1) {
      return make_error(ErrorCode::kCorruption,
                        join_path(folder, stem) + "*: files of " + std::to_string(count) +
                            " and files of " + std::to_string(std::next(counts.begin())->first) +
                            " lie beside each other, expected one set; remove the stale ones or "
                            "fetch the data set again");
    }
    if (indices.size() < count && count <= 100'000) {
      unsigned missing = 0;
      while (indices.contains(missing)) ++missing;
      return make_error(ErrorCode::kCorruption,
                        join_path(folder, stem) + "*: " + std::to_string(indices.size()) + " of " +
                            std::to_string(count) + " files are there, number " +
                            std::to_string(missing) + " is missing; fetch the data set again");
    }
  }
  return {};
}

std::vector<std::string> select(const std::vector<std::string>& all,
                                const std::vector<std::string>& patterns) {
  std::vector<std::string> result;
  for (const std::string& pattern : patterns) {
    for (const std::string& path : all) {
      if (matches_pattern(pattern, path) &&
          std::find(result.begin(), result.end(), path) == result.end()) {
        result.push_back(path);
      }
    }
  }
  return result;
}

Result<std::vector<std::string>> files_beside_the_task(const FileSystem& files,
                                                       const Definition& definition,
                                                       const std::string& table) {
  std::vector<std::string> result;
  for (const std::string& name : definition.data_files) {
    const std::string path =
        name.starts_with("/") ? name : join_path(parent_path(definition.file.source), name);
    const auto info = files.info_followed(path);
    if (!info || info->type != FileType::kRegular) {
      return make_error(ErrorCode::kNotFound,
                        path + ": named by " + table + " files of " + definition.file.source +
                            (info ? ", is not a regular file" : ", is not there"));
    }
    if (!is_data_file(path)) {
      return make_error(ErrorCode::kUnsupported,
                        path + ": named by " + table + " files of " + definition.file.source +
                            "; a data file ends in .parquet, .jsonl or .ndjson");
    }
    result.push_back(path);
  }
  return result;
}

bool matches_component(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    for (std::size_t skip = 0; skip <= name.size(); ++skip) {
      if (matches_component(pattern.substr(1), name.substr(skip))) return true;
    }
    return false;
  }
  if (name.empty()) return false;
  if (pattern[0] == '[') {
    const std::size_t end = pattern.find(']', 1);
    if (end != std::string_view::npos) {
      bool inside = false;
      for (std::size_t i = 1; i < end; ++i) {
        if (i + 2 < end && pattern[i + 1] == '-') {
          inside = inside || (name[0] >= pattern[i] && name[0] <= pattern[i + 2]);
          i += 2;
        } else {
          inside = inside || name[0] == pattern[i];
        }
      }
      return inside && matches_component(pattern.substr(end + 1), name.substr(1));
    }
  }
  return (pattern[0] == '?' || pattern[0] == name[0]) &&
         matches_component(pattern.substr(1), name.substr(1));
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view path) {
  if (pattern.starts_with("./")) pattern.remove_prefix(2);
  const std::size_t slash = pattern.find('/');
  const std::string_view head = pattern.substr(0, slash);
  if (std::count(head.begin(), head.end(), '*') > 8) return false;  // each star multiplies the work
  if (slash == std::string_view::npos && head != "**") {
    return path.find('/') == std::string_view::npos && matches_component(head, path);
  }
  const std::size_t path_slash = path.find('/');
  if (head == "**") {
    if (slash == std::string_view::npos) return true;
    if (matches_pattern(pattern.substr(slash + 1), path)) return true;
    return path_slash != std::string_view::npos &&
           matches_pattern(pattern, path.substr(path_slash + 1));
  }
  return path_slash != std::string_view::npos &&
         matches_component(head, path.substr(0, path_slash)) &&
         matches_pattern(pattern.substr(slash + 1), path.substr(path_slash + 1));
}

std::string download_command(const std::string& data_set, const std::string& data_dir) {
  return "hf download --repo-type dataset " + data_set + " --local-dir " +
         join_path(data_dir.empty() ? "DATA_DIR" : data_dir, data_set);
}

Result<std::vector<std::string>> find_data_files(const FileSystem& files,
                                                 const Definition& definition,
                                                 const std::string& data_dir,
                                                 const std::string& table) {
  if (!definition.data_files.empty()) return files_beside_the_task(files, definition, table);
  const TaskFile& task = definition.file;
  EVALCAR_ASSIGN_OR_RETURN(const std::string folder, find_folder(files, task.data_set, data_dir));
  std::vector<std::string> all;
  EVALCAR_RETURN_IF_ERROR(list_below(files, folder, "", 0, all));
  EVALCAR_ASSIGN_OR_RETURN(const Configs configs,
                           read_readme(files, folder, task.config, task.split));
  std::vector<std::string> found = select(all, configs.patterns);
  for (const std::string& pattern : usual_patterns(task.config, task.split)) {
    if (!found.empty()) break;
    found = select(all, {pattern});
  }
  if (found.empty()) {
    return with_lines(
        make_error(ErrorCode::kNotFound,
                   folder + ": holds no files of split \"" + task.split + "\"" +
                       (task.config.empty() ? "" : ", configuration \"" + task.config + "\"") +
                       " (neither by the configs: of README.md nor as " + task.split +
                       "-00000-of-0000N.parquet)"),
        "fetch it with: " + download_command(task.data_set, data_dir));
  }
  EVALCAR_RETURN_IF_ERROR(check_shards(found, folder));
  for (std::string& path : found) path = join_path(folder, path);
  return found;
}

Result<std::vector<std::string>> find_example_files(const FileSystem& files,
                                                    const Definition& definition,
                                                    const std::string& data_dir) {
  Definition theirs = definition;
  theirs.data_files = definition.fewshot->files;
  theirs.file.split = definition.fewshot->split;
  return find_data_files(files, theirs, data_dir, "[fewshot]");
}

}  // namespace evalcar::tasks
