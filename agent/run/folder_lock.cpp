#include "agent/run/folder_lock.h"

#include <utility>

#include "store/base/file_system_kind.h"

namespace evalcar::run {

FolderLock::Answer FolderLock::take(const std::string& folder) {
  if (held()) return {};
  const auto type = files_.file_system_type(folder);
  const bool shared = type.has_value() && !file_system_kind(*type).local;
  const auto taken = std::make_shared<std::optional<Result<OutputLock>>>();
  Status asked =
      files_.perform(folder, [taken, shared, path = join_path(folder, "lock")]() -> Status {
        taken->emplace(OutputLock::take(path, shared));
        return {};
      });
  if (!asked.has_value()) return {std::move(asked), {}};
  Result<OutputLock> lock = std::move(**taken);
  if (!lock.has_value()) return {{}, std::move(lock).error()};
  folder_ = folder;
  lock_ = std::make_shared<const OutputLock>(std::move(lock).value());
  checked_at_ = clock_.monotonic_now();
  return {};
}

FolderLock::Answer FolderLock::check() {
  if (!held()) return {};
  checked_at_ = clock_.monotonic_now();
  const auto said = std::make_shared<Status>();
  Status asked = files_.perform(folder_, [lock = lock_, said]() -> Status {
    *said = lock->check();
    if (said->has_value() && lock->needs_renewal()) lock->renew();
    return {};
  });
  return {std::move(asked), *said};
}

std::optional<MonotonicTime> FolderLock::renewal_due() const {
  if (!held() || !lock_->needs_renewal()) return std::nullopt;
  return checked_at_ + OutputLock::kRenewal;
}

void FolderLock::drop() {
  if (!held()) return;
  files_.perform_later(folder_, [lock = std::exchange(lock_, nullptr)]() mutable {
    lock.reset();  // its end asks the file system
  });
}

}  // namespace evalcar::run
