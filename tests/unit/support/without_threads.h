// Runs code where the system gives no thread beside the first.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <system_error>
#include <thread>

namespace evalcar::test_support {

/// What `body` returns (0 to 100) in a child process that may have no other thread; 101 if threads
/// can be made there all the same, 102 if it could not run or died, 103 if it threw. A limit on
/// processes is none for root, so the child is nobody: what it reads has to be readable for
/// everybody.
template <typename Body>
int without_threads(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(102);
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) ::_exit(102);
    try {
      std::thread([] {}).join();
      ::_exit(101);
    } catch (const std::system_error&) {  // as it has to be
    }
    try {
      ::_exit(body());
    } catch (...) {  // not into the test that goes on in the parent
      ::_exit(103);
    }
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 102;
  return WEXITSTATUS(status);
}

}  // namespace evalcar::test_support
