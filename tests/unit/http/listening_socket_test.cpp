#include "agent/http/listening_socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>

#include "tests/unit/support/sanitizers.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::http;
using supervise::OwnedFd;

TEST_CASE("a socket that somebody listens on stays where no descriptor is left to ask him") {
  if (test::kUnderAddressSanitizer) SKIP(test::kNeedsDescriptors);
  const test::TemporaryDirectory folder;
  const std::string path = folder / "evalcar.sock";
  const auto first = listen_at(path);
  REQUIRE(first.has_value());
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(OwnedFd(::dup(first->get())).get());  // the lowest free one

  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto second = listen_at(path);
  ::setrlimit(RLIMIT_NOFILE, &before);

  CHECK_FALSE(second.has_value());
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("a socket that is not for connections is somebody else's, and stays") {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "log.sock";
  const OwnedFd other(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  REQUIRE(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);

  CHECK_FALSE(listen_at(path).has_value());

  CHECK(std::filesystem::exists(path));
}
