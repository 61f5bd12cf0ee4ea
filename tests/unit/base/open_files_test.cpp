#include "store/base/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using namespace evalcar;

TEST_CASE("a low soft limit on open files is raised, a high one is left alone") {
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 64;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);

  const std::uint64_t raised = raise_open_files_limit();

  rlimit now = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &now) == 0);
  CHECK(now.rlim_cur == raised);
  CHECK(now.rlim_cur == std::min<rlim_t>(before.rlim_max, 65536));
  CHECK(now.rlim_max == before.rlim_max);
  CHECK(raise_open_files_limit() == raised);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}
