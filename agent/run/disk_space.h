// How much of the disk is the trainer's, measured now.
#pragma once

#include <cstdint>
#include <string>

#include "agent/config/settings.h"
#include "agent/run/disk_view.h"
#include "agent/stage/stage.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class DiskSpace {
 public:
  DiskSpace(const FileSystem& files, const config::LimitSettings& limits, const DiskView& view,
            std::string path)
      : files_(files), limits_(limits), view_(view), path_(std::move(path)) {}

  /// Bytes that stay free for the trainer: limits.min_free, else twice the newest checkpoint. When
  /// its weights are whole, the optimizer's files are still to come, so it is measured at each
  /// call; and so is the newest whole one, for the newest may have just begun.
  std::uint64_t min_free() const;
  /// Bytes that leases may hold.
  std::uint64_t lease_budget() const;
  /// That is less than the disk has.
  bool has_budget() const { return limits_.lease_budget.has_value(); }
  /// Bytes that a lease may copy now.
  std::uint64_t copy_budget() const;
  /// The same of one that no evaluation waits for: as much as the disk guard would leave. Whoever
  /// waits to be measured loses nothing for what is only kept.
  std::uint64_t spare_copy_budget(const stage::Stage& stage) const;
  /// Absent: it cannot be asked.
  Result<std::uint64_t> free_bytes() const { return files_.free_bytes(path_); }

 private:
  std::uint64_t folder_bytes(const std::string& path, int depth) const;

  const FileSystem& files_;
  const config::LimitSettings& limits_;
  const DiskView& view_;
  std::string path_;
};

}  // namespace evalcar::run
