#include "evaluator/service/read_record.h"

#include <algorithm>

namespace evalcar::service {
namespace {

constexpr std::size_t kMostFiles = 1U << 18U;

}  // namespace

bool are_unchanged(const FileSystem& files, const std::vector<ReadFile>& read) {
  return std::ranges::all_of(read, [&](const ReadFile& file) {
    const auto info = files.info_now(file.path);
    return info.has_value() && tasks::identity_of(*info) == file.identity;
  });
}

std::optional<std::vector<ReadFile>> ReadRecord::proof(WallTime now) const {
  const Seen seen = seen_.with([](const Seen& all) { return all; });
  if (seen.proves_nothing) return std::nullopt;
  std::vector<ReadFile> read;
  for (const auto& [path, identity] : seen.files) {
    if (!tasks::is_telling(files_, path, identity, now)) return std::nullopt;
    read.push_back({path, identity});
  }
  if (!are_unchanged(files_, read)) return std::nullopt;
  return read;
}

Result<std::unique_ptr<ReadableFile>> ReadRecord::open_readable(const std::string& path) const {
  EVALCAR_ASSIGN_OR_RETURN(auto file, files_.open_readable(path));
  const auto info = file->info();  // of what was opened, whatever the name means later
  seen_.with([&](Seen& seen) {
    if (!info.has_value() || (seen.files.size() >= kMostFiles && !seen.files.contains(path))) {
      seen.proves_nothing = true;
      return;
    }
    const auto [known, is_new] = seen.files.try_emplace(path, tasks::identity_of(*info));
    if (!is_new && known->second != tasks::identity_of(*info)) seen.proves_nothing = true;
  });
  return file;
}

Result<std::vector<DirectoryEntry>> ReadRecord::list(const std::string& path,
                                                     std::size_t limit) const {
  return files_.list(path, limit);
}
Result<FileInfo> ReadRecord::info(const std::string& path) const { return files_.info(path); }
Result<FileInfo> ReadRecord::info_followed(const std::string& path) const {
  return files_.info_followed(path);
}
Result<FileInfo> ReadRecord::info_now(const std::string& path) const {
  return files_.info_now(path);
}
Result<std::string> ReadRecord::read_link(const std::string& path) const {
  return files_.read_link(path);
}
Result<std::string> ReadRecord::real_path(const std::string& path) const {
  return files_.real_path(path);
}
Result<std::uint64_t> ReadRecord::free_bytes(const std::string& path) const {
  return files_.free_bytes(path);
}
Result<std::uint64_t> ReadRecord::file_system_type(const std::string& path) const {
  return files_.file_system_type(path);
}

}  // namespace evalcar::service
