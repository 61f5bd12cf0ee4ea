#include "evaluator/service/read_record.h"

#include <algorithm>

namespace evalcar::service {
namespace {

constexpr std::size_t kMostFiles = 1U << 18U;

}  // namespace

bool are_unchanged(const FileSystem& files, const std::vector<ReadFile>& read,
                   const std::stop_token& stop) {
  return std::ranges::all_of(read, [&](const ReadFile& file) {
    if (stop.stop_requested()) return false;
    const auto info = files.info_now(file.path);
    return info.has_value() && tasks::identity_of(*info) == file.identity;
  });
}

std::optional<std::vector<ReadFile>> ReadRecord::proof(const std::stop_token& stop) const {
  const Seen seen = seen_.with([](const Seen& all) { return all; });
  if (seen.proves_nothing) return std::nullopt;
  std::vector<ReadFile> read;
  for (const auto& [path, identity] : seen.files) read.push_back({path, identity});
  if (!are_unchanged(files_, read, stop)) return std::nullopt;
  return read;
}

Result<std::unique_ptr<ReadableFile>> ReadRecord::open_readable(const std::string& path) const {
  const WallTime before = clock_.wall_now();
  EVALCAR_ASSIGN_OR_RETURN(auto file, files_.open_readable(path));
  const auto info = file->info();  // of what was opened, whatever the name means later
  seen_.with([&](Seen& seen) {
    if (!info.has_value() || !proves(seen, path, tasks::identity_of(*info), before))
      seen.proves_nothing = true;
  });
  return file;
}

// From `before` on each change of the file changes its identity, and it is the one that it was when
// it was opened before.
bool ReadRecord::proves(Seen& seen, const std::string& path, const tasks::FileIdentity& identity,
                        WallTime before) const {
  const auto known = seen.files.find(path);
  if (known != seen.files.end()) return known->second == identity;
  if (seen.files.size() >= kMostFiles || !tasks::lies_behind(identity, before)) return false;
  const auto [device, is_new] = seen.keeps_ctime.try_emplace(identity.device, false);
  if (is_new) device->second = tasks::keeps_ctime(files_, path);
  if (device->second) seen.files.emplace(path, identity);
  return device->second;
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
