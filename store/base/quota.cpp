#include "store/base/quota.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace evalcar {
namespace {

constexpr std::uint64_t kBlock = 1024;  // of a limit, whatever the file system's are

#ifdef SYS_quotactl_fd
constexpr int kProjectQuota = 2;  // PRJQUOTA of linux/quota.h

std::optional<std::uint64_t> left_of(int fd, int type, std::uint32_t id) {
  dqblk block{};
  if (::syscall(SYS_quotactl_fd, fd, QCMD(Q_GETQUOTA, type), id, &block) != 0) return std::nullopt;
  return quota_left(QuotaUse{.soft_limit = block.dqb_bsoftlimit * kBlock,
                             .hard_limit = block.dqb_bhardlimit * kBlock,
                             .used = block.dqb_curspace});
}
#endif

}  // namespace

std::optional<std::uint64_t> quota_left(const QuotaUse& use) {
  const std::uint64_t limit = use.hard_limit != 0 ? use.hard_limit : use.soft_limit;
  if (limit == 0) return std::nullopt;
  return limit - std::min(limit, use.used);
}

std::optional<std::uint64_t> quota_left(const std::string& folder) {
  std::optional<std::uint64_t> least;
#ifdef SYS_quotactl_fd
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return least;
  const auto count = [&least](std::optional<std::uint64_t> left) {
    if (left.has_value()) least = std::min(least.value_or(*left), *left);
  };
  struct stat status{};
  if (::fstat(fd, &status) == 0) {
    count(left_of(fd, USRQUOTA, status.st_uid));
    count(left_of(fd, GRPQUOTA, status.st_gid));
  }
  fsxattr attributes{};
  if (::ioctl(fd, FS_IOC_FSGETXATTR, &attributes) == 0 && attributes.fsx_projid != 0)
    count(left_of(fd, kProjectQuota, attributes.fsx_projid));
  ::close(fd);
#else
  (void)folder;
#endif
  return least;
}

}  // namespace evalcar
