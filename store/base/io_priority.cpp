#include "store/base/io_priority.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace evalcar {
namespace {

constexpr int kWhoProcess = 1;  // despite its name: a thread
constexpr int kSelf = 0;
constexpr int kClassShift = 13;
constexpr int kClassMask = 0x7;
constexpr int kLevelMask = 0x7;  // between the two lie hints for devices

}  // namespace

IoPriority io_priority() {
  const long value = ::syscall(SYS_ioprio_get, kWhoProcess, kSelf);
  if (value < 0) return {};
  return {static_cast<IoPriority::Class>((value >> kClassShift) & kClassMask),
          static_cast<int>(value & kLevelMask)};
}

bool set_io_priority(IoPriority priority) {
  const int value = (static_cast<int>(priority.io_class) << kClassShift) | priority.level;
  return ::syscall(SYS_ioprio_set, kWhoProcess, kSelf, value) == 0;
}

}  // namespace evalcar
