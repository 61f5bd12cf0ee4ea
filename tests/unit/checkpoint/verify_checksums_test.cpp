#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "store/checkpoint/crc32.h"
#include "store/checkpoint/plan.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

constexpr std::uint64_t kBlock = std::uint64_t{1} << 20U;

/// Two files, each one record of 5 MiB and some bytes.
struct Scene {
  Scene() {
    for (const std::string path : {"/c/rank_0.pt", "/c/rank_1.pt"}) {
      const std::string content(5 * kBlock + 77, path[8]);
      files.put_file(path, content);
      plan.files.push_back({path, files.info(path).value()});
      plan.records.push_back({plan.files.size() - 1, 10, content.size() - 10,
                              crc32(std::as_bytes(std::span(content).subspan(10)))});
    }
  }

  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  Plan plan;
};

}  // namespace

TEST_CASE("verifying checksums tells its bytes block by block, up to all of them") {
  Scene scene;
  std::vector<std::uint64_t> told;

  const Status verified = verify_checksums(scene.files, scene.plan, 1,
                                           [&](std::uint64_t done) { told.push_back(done); });

  REQUIRE(verified.has_value());
  CHECK(told.size() == 12);  // 6 blocks a record
  CHECK(std::is_sorted(told.begin(), told.end()));
  CHECK(told.front() == kBlock);
  CHECK(told.back() == scene.plan.record_bytes());
}

TEST_CASE("a stop ends the verifying of checksums after the blocks that are being read") {
  Scene scene;
  const int threads = GENERATE(1, 2);
  std::stop_source stop;
  scene.files.on_call([&](const test::Call& call) {
    if (call.operation == "read_at" && scene.files.count("read_at") >= 3) stop.request_stop();
  });
  scene.files.reset_calls();

  const Status verified = verify_checksums(scene.files, scene.plan, threads, {}, stop.get_token());

  REQUIRE_FALSE(verified.has_value());
  CHECK(verified.error().code == ErrorCode::kCancelled);
  CHECK(scene.files.count("read_at") <= 3 + static_cast<std::size_t>(threads));
}

TEST_CASE("lost blocks are named, whichever thread sees them first") {
  Scene scene;
  scene.plan.records[1].crc32 ^= 1U;
  const int threads = GENERATE(1, 2, 7);

  const Status verified = verify_checksums(scene.files, scene.plan, threads);

  REQUIRE_FALSE(verified.has_value());
  CHECK(verified.error().code == ErrorCode::kCorruption);
  CHECK(verified.error().message.find("/c/rank_1.pt: the 5242947 bytes at 10") !=
        std::string::npos);
}
