#include "evaluator/service/pulse.h"

#include <algorithm>
#include <span>
#include <utility>

namespace evalcar::service {
namespace {

/// One read is never longer: at a megabyte a second it still beats every few seconds.
constexpr std::size_t kLongestRead = std::size_t{8} << 20U;

class PulsingFile final : public ReadableFile {
 public:
  PulsingFile(std::unique_ptr<ReadableFile> file, Pulse& pulse)
      : file_(std::move(file)), pulse_(pulse) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::size_t asked = std::min(out.size() - done, kLongestRead);
      EVALCAR_ASSIGN_OR_RETURN(const std::size_t read,
                               file_->read_at(offset + done, out.subspan(done, asked)));
      pulse_.beat();
      done += read;
      if (read < asked) break;  // the end of the file
    }
    return done;
  }
  Result<FileInfo> info() const override { return file_->info(); }

 private:
  std::unique_ptr<ReadableFile> file_;
  Pulse& pulse_;
};

}  // namespace

Result<std::unique_ptr<ReadableFile>> PulsingFileSystem::open_readable(
    const std::string& path) const {
  EVALCAR_ASSIGN_OR_RETURN(auto file, files_.open_readable(path));
  pulse_.beat();
  return std::unique_ptr<ReadableFile>(std::make_unique<PulsingFile>(std::move(file), pulse_));
}

Result<std::vector<DirectoryEntry>> PulsingFileSystem::list(const std::string& path,
                                                            std::size_t limit) const {
  auto entries = files_.list(path, limit);
  pulse_.beat();
  return entries;
}
Result<FileInfo> PulsingFileSystem::info(const std::string& path) const {
  auto found = files_.info(path);
  pulse_.beat();
  return found;
}
Result<FileInfo> PulsingFileSystem::info_followed(const std::string& path) const {
  auto found = files_.info_followed(path);
  pulse_.beat();
  return found;
}
Result<FileInfo> PulsingFileSystem::info_now(const std::string& path) const {
  auto found = files_.info_now(path);
  pulse_.beat();
  return found;
}
Result<std::string> PulsingFileSystem::read_link(const std::string& path) const {
  return files_.read_link(path);
}
Result<std::string> PulsingFileSystem::real_path(const std::string& path) const {
  return files_.real_path(path);
}
Result<std::uint64_t> PulsingFileSystem::free_bytes(const std::string& path) const {
  return files_.free_bytes(path);
}
Result<std::uint64_t> PulsingFileSystem::file_system_type(const std::string& path) const {
  return files_.file_system_type(path);
}

}  // namespace evalcar::service
