#include "store/base/helper_threads.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/without_threads.h"

using namespace evalcar;

TEST_CASE("helpers each do the work once and are waited for") {
  std::atomic<int> done{0};
  {
    const HelperThreads helpers(3, [&] { ++done; });
    CHECK(helpers.size() == 3);
  }
  CHECK(done == 3);
  CHECK(HelperThreads(0, [] {}).size() == 0);
}

TEST_CASE("where the system gives no thread there are no helpers, and nobody dies of it") {
  const int left = test_support::without_threads([] {
    const HelperThreads helpers(3, [] {});
    return static_cast<int>(helpers.size());
  });

  CHECK(left == 0);
}
