#include "store/checkpoint/dcp_folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kMetadata = ".metadata";
constexpr std::string_view kData = ".distcp";
/// A checkpoint of a 70B model over 512 ranks has hundreds of MB.
constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 30U;
constexpr int kMaxRank = 65535;

/// R of "__R_I.distcp" and "__R.metadata".
std::optional<int> rank_of(std::string_view name, std::string_view suffix) {
  if (!name.starts_with("__") || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(2);
  name.remove_suffix(suffix.size());
  if (suffix == kData) {
    const std::size_t bar = name.find('_');
    if (bar == std::string_view::npos) return std::nullopt;
    name = name.substr(0, bar);
  }
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || end != name.data() + name.size() || rank < 0 || rank > kMaxRank) {
    return std::nullopt;
  }
  return rank;
}

Error unavailable(const std::string& path, const std::string& why) {
  return make_error(ErrorCode::kUnavailable, path + ": " + why);
}

/// The metadata files that a reader needs, as names.
Result<std::vector<std::string>> metadata_names(const Folder& folder) {
  if (folder.has(kMetadata)) return std::vector{std::string(kMetadata)};
  int last_rank = -1;
  bool any = false;
  for (const DirectoryEntry& entry : folder.entries) {
    const auto own = rank_of(entry.name, kMetadata);
    any = any || own.has_value();
    last_rank = std::max({last_rank, own.value_or(-1), rank_of(entry.name, kData).value_or(-1)});
  }
  if (!any) {
    return unavailable(join_path(folder.path, kMetadata), "is missing (it is written last)");
  }
  std::vector<std::string> names;
  for (int rank = 0; rank <= last_rank; ++rank) {
    names.push_back("__" + std::to_string(rank) + std::string(kMetadata));
    if (!folder.has(names.back())) {
      return unavailable(join_path(folder.path, names.back()),
                         "is missing (each rank writes its own last)");
    }
  }
  return names;
}

/// One metadata file, read whole and unchanged while it was.
Status add_metadata(const FileSystem& files, const Folder& folder, const std::string& name,
                    DcpMetadataReader& reader, DcpFolder& read) {
  const std::string path = join_path(folder.path, name);
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, folder.path, name));
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo before, file->info());
  if (before.size_bytes == 0) return unavailable(path, "is empty");
  if (before.size_bytes > kMaxMetadataBytes) {
    return make_error(ErrorCode::kCorruption, path + ": " + std::to_string(before.size_bytes) +
                                                  " bytes, expected at most " +
                                                  std::to_string(kMaxMetadataBytes));
  }
  std::string bytes(static_cast<std::size_t>(before.size_bytes), '\0');
  EVALCAR_RETURN_IF_ERROR(file->read_exactly_at(
      0, std::as_writable_bytes(std::span<char>(bytes.data(), bytes.size())), path));
  EVALCAR_RETURN_IF_ERROR(check_unchanged(*file, before, path));
  read.metadata_files.push_back({path, before});
  return reader.add(std::move(bytes), path);
}

/// Compares the data files with the metadata.
class DataFiles {
 public:
  DataFiles(const FileSystem& files, const Folder& folder, const DcpFolder& read)
      : files_(files), folder_(folder), read_(read) {}

  Status check() {
    std::set<std::string_view> named;
    for (const DcpFile& file : read_.metadata.files) {
      named.insert(file.name);
      if (file.has_weights) EVALCAR_RETURN_IF_ERROR(check_file(file));
    }
    EVALCAR_RETURN_IF_ERROR(check_ages());
    for (const DirectoryEntry& entry : folder_.entries) {
      const bool is_new_metadata = entry.name == std::string(kMetadata) + ".tmp";
      if (!is_new_metadata && (!entry.name.ends_with(kData) || named.contains(entry.name)))
        continue;
      EVALCAR_RETURN_IF_ERROR(check_stranger(entry.name));
    }
    return {};
  }

 private:
  struct Age {
    std::string path;
    bool newer = false;
  };

  /// When the metadata that speaks of a data file was written: its rank's own, or the one.
  std::int64_t written_at(const std::string& name) const {
    const auto& all = read_.metadata_files;
    const auto rank = static_cast<std::size_t>(rank_of(name, kData).value_or(0));
    return all[all.size() > 1 ? std::min(rank, all.size() - 1) : 0].identity.mtime_ns;
  }

  Status check_file(const DcpFile& file) {
    const std::string path = join_path(folder_.path, file.name);
    EVALCAR_ASSIGN_OR_RETURN(const auto opened, open_inside(files_, folder_.path, file.name));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, opened->info());
    const bool newer = info.mtime_ns > written_at(file.name);
    if (info.size_bytes < file.size()) {
      return unavailable(path, "ends after " + std::to_string(info.size_bytes) +
                                   " bytes, expected " + std::to_string(file.size()) +
                                   " (still being written, or truncated)");
    }
    if (info.size_bytes > file.size()) {
      const std::string why = "has " + std::to_string(info.size_bytes - file.size()) +
                              " bytes that no item names, from byte " +
                              std::to_string(file.size()) + " on";
      return newer ? unavailable(path, why + " (being saved over)")
                   : make_error(ErrorCode::kCorruption, path + ": " + why);
    }
    if (file.size() > 0) ages_.push_back({path, newer});
    return {};
  }

  /// A save over an old checkpoint rewrites the data files one by one and the metadata last. Where
  /// some are newer than it, old and new stand side by side; where all are, all are new and, with
  /// the same items, what the old metadata says is true of them.
  Status check_ages() const {
    const auto newer =
        std::find_if(ages_.begin(), ages_.end(), [](const Age& a) { return a.newer; });
    const auto older =
        std::find_if(ages_.begin(), ages_.end(), [](const Age& a) { return !a.newer; });
    if (newer == ages_.end() || older == ages_.end()) return {};
    return unavailable(newer->path, hint());
  }

  /// A data file that the metadata does not know, or the next metadata.
  Status check_stranger(const std::string& name) const {
    const auto info = files_.info(join_path(folder_.path, name));
    if (!info.has_value() || info->size_bytes == 0 || info->mtime_ns <= written_at(name)) return {};
    return unavailable(join_path(folder_.path, name), "belongs to another save, and " + hint());
  }

  static std::string hint() {
    return "is newer than the metadata: the checkpoint is being saved over (or its files were "
           "copied without their times: then touch .metadata)";
  }

  const FileSystem& files_;
  const Folder& folder_;
  const DcpFolder& read_;
  std::vector<Age> ages_;
};

}  // namespace

bool holds_dcp(const Folder& folder) {
  return std::any_of(folder.entries.begin(), folder.entries.end(), [](const DirectoryEntry& entry) {
    return entry.name == kMetadata || entry.name.ends_with(kData) ||
           rank_of(entry.name, kMetadata).has_value();
  });
}

Result<DcpFolder> read_dcp_folder(const FileSystem& files, const Folder& folder) {
  DcpFolder read;
  EVALCAR_ASSIGN_OR_RETURN(const auto names, metadata_names(folder));
  DcpMetadataReader reader;
  for (const std::string& name : names) {
    EVALCAR_RETURN_IF_ERROR(add_metadata(files, folder, name, reader, read));
  }
  EVALCAR_ASSIGN_OR_RETURN(read.metadata, reader.finish());
  for (const DcpFile& file : read.metadata.files) {
    read.world_size = std::max(read.world_size, rank_of(file.name, kData).value_or(-1) + 1);
  }
  EVALCAR_RETURN_IF_ERROR(DataFiles(files, folder, read).check());
  return read;
}

std::vector<std::string> files_to_read(const DcpFolder& dcp, const std::string& prefix) {
  const auto below = [&](const std::string& name) {
    return prefix.empty() ? name : join_path(prefix, name);
  };
  std::vector<std::string> names;
  for (const DcpFile& file : dcp.metadata.files) {
    if (file.has_weights) names.push_back(below(file.name));
  }
  for (const PlanFile& file : dcp.metadata_files) names.push_back(below(base_name(file.path)));
  return names;
}

}  // namespace evalcar::checkpoint
