#include "agent/service/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace evalcar::agent_service {

bool occupy_standard_descriptors() {
  for (int wanted = STDIN_FILENO; wanted <= STDERR_FILENO; ++wanted) {
    if (::fcntl(wanted, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is `wanted`: those below are taken.
    const int taken = ::open("/dev/null", wanted == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (taken != wanted) {
      if (taken >= 0) ::close(taken);
      return false;
    }
  }
  return true;
}

}  // namespace evalcar::agent_service
