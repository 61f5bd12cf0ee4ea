// What the owner of a folder may still write there, where the file system counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evalcar {

/// Bytes of a limit, as the kernel counts them.
struct QuotaUse {
  std::uint64_t soft_limit = 0;  ///< 0 = none
  std::uint64_t hard_limit = 0;  ///< 0 = none
  std::uint64_t used = 0;
};

/// Up to the hard limit, or the soft one where there is no other. Absent: no limit.
std::optional<std::uint64_t> quota_left(const QuotaUse& use);

/// The least that user, group and project of the folder have left. Absent: nobody has a limit, or
/// it cannot be asked: over a network (NFS, Lustre), of another user, before Linux 5.14,
/// where a unit denies the call.
std::optional<std::uint64_t> quota_left(const std::string& folder);

}  // namespace evalcar
