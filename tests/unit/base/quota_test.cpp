#include "store/base/quota.h"

#include <catch2/catch_test_macros.hpp>

#include "store/base/file_system.h"

using namespace evalcar;

TEST_CASE("what a quota leaves is up to its hard limit, else to the soft one") {
  CHECK(quota_left(QuotaUse{.soft_limit = 10, .hard_limit = 20, .used = 5}) == 15);
  CHECK(quota_left(QuotaUse{.soft_limit = 10, .hard_limit = 0, .used = 5}) == 5);
  CHECK(quota_left(QuotaUse{.soft_limit = 10, .hard_limit = 20, .used = 25}) == 0);
  CHECK_FALSE(quota_left(QuotaUse{.soft_limit = 0, .hard_limit = 0, .used = 25}).has_value());
}

TEST_CASE("where no quota can be asked, free space is the file system's") {
  CHECK_FALSE(quota_left("/no/such/folder").has_value());
  CHECK(RealFileSystem().free_bytes("/").value() > 0);
}
