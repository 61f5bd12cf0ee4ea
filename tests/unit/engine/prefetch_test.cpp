#include "evaluator/engine/prefetch.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <optional>
#include <semaphore>
#include <thread>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/forwarding_file_system.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using engine::Prefetch;

namespace {

constexpr std::chrono::seconds kLong{20};  // a net

/// Files that hang when they are opened, until they are let go.
class HangingFiles final : public test::ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override {
    opened.release();
    goes_on.acquire();
    return below().open_readable(path);
  }
  mutable std::counting_semaphore<> opened{0};
  mutable std::counting_semaphore<> goes_on{0};
};

}  // namespace

TEST_CASE("a read that hangs is waited for once, keeps others out, and ends when it comes back") {
  test::FakeClock clock;
  test::MemoryFileSystem memory(clock);
  HangingFiles files(memory);
  Prefetch prefetch(c10::kCPU, 0.8, 2);
  std::optional<Status> ended;
  std::thread reading([&] { ended = prefetch.read(files, {}, "/c", c10::kFloat, 0, {}); });
  files.opened.acquire();

  CHECK_FALSE(prefetch.drop(std::chrono::milliseconds(1)));
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(prefetch.drop(kLong));
  CHECK(std::chrono::steady_clock::now() - start < kLong / 2);
  const Status other = prefetch.read(memory, {}, "/d", c10::kFloat, 0, {});
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().code == ErrorCode::kUnavailable);
  CHECK_FALSE(prefetch.take(memory, {}, {}, c10::kFloat).has_value());

  files.goes_on.release();
  reading.join();
  CHECK_FALSE(ended->has_value());
  CHECK_FALSE(prefetch.drop(kLong));  // there is nothing
}

TEST_CASE("a read that was waited for in vain is waited for again where that is asked for") {
  test::FakeClock clock;
  test::MemoryFileSystem memory(clock);
  HangingFiles files(memory);
  Prefetch prefetch(c10::kCPU, 0.8, 2);
  std::thread reading([&] { (void)prefetch.read(files, {}, "/c", c10::kFloat, 0, {}); });
  files.opened.acquire();
  CHECK_FALSE(prefetch.drop(std::chrono::milliseconds(1)));
  CHECK_FALSE(prefetch.drop(std::chrono::milliseconds(1), /*again=*/true));  // not for good
  std::thread letting_go([&] { files.goes_on.release(); });

  (void)prefetch.drop(kLong, /*again=*/true);
  const Status next = prefetch.read(memory, {}, "/d", c10::kFloat, 0, {});

  REQUIRE_FALSE(next.has_value());  // there is no such folder
  CHECK(next.error().code != ErrorCode::kUnavailable);
  letting_go.join();
  reading.join();
}

TEST_CASE("when what is being read gave way, its thread is through with it") {
  test::FakeClock clock;
  test::MemoryFileSystem memory(clock);
  HangingFiles files(memory);
  Prefetch prefetch(c10::kCPU, 0.8, 2);
  std::thread reading([&] { (void)prefetch.read(files, {}, "/c", c10::kFloat, 0, {}); });
  files.opened.acquire();
  std::thread letting_go([&] { files.goes_on.release(); });

  (void)prefetch.drop(kLong);
  const Status next = prefetch.read(memory, {}, "/d", c10::kFloat, 0, {});

  REQUIRE_FALSE(next.has_value());  // there is no such folder
  CHECK(next.error().code != ErrorCode::kUnavailable);
  letting_go.join();
  reading.join();
}
