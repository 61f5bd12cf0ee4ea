// What the file systems of an evaluation have in common: they are for reading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "store/base/file_system.h"

namespace evalcar::service {

/// Changing calls are refused with kUnsupported: what evaluates writes nothing.
class ReadOnlyFileSystem : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create(const std::string& path, std::uint32_t mode) final;
  Result<std::unique_ptr<WritableFile>> open_appendable(const std::string& path,
                                                        std::uint32_t mode) final;
  Status make_directory(const std::string& path, std::uint32_t mode) final;
  Status rename(const std::string& from, const std::string& to) final;
  Status remove_file(const std::string& path) final;
  Status remove_directory(const std::string& path) final;
  Status hard_link(const std::string& from, const std::string& to) final;
  Status symbolic_link(const std::string& target, const std::string& path) final;
  Status set_mtime(const std::string& path, std::int64_t mtime_ns) final;
  Status truncate(const std::string& path, std::uint64_t size_bytes) final;
  Status sync_directory(const std::string& path) final;
};

}  // namespace evalcar::service
