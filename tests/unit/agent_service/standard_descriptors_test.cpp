#include "agent/service/standard_descriptors.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>

using namespace evalcar::agent_service;

TEST_CASE("no file that is opened takes the place of a closed standard error") {
  const pid_t child = ::fork();
  if (child == 0) {  // it tells by its exit code
    ::close(STDIN_FILENO);
    ::close(STDERR_FILENO);
    if (!occupy_standard_descriptors()) ::_exit(1);
    if (::open("/dev/null", O_RDONLY) <= STDERR_FILENO) ::_exit(2);
    if (::write(STDERR_FILENO, "x", 1) != -1 || errno != EBADF) ::_exit(3);
    char byte = 0;
    if (::read(STDIN_FILENO, &byte, 1) != -1 || errno != EBADF) ::_exit(4);
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("standard descriptors that are open stay what they are") {
  const int before = ::fcntl(STDOUT_FILENO, F_GETFL);
  CHECK(occupy_standard_descriptors());
  CHECK(::fcntl(STDOUT_FILENO, F_GETFL) == before);
}
