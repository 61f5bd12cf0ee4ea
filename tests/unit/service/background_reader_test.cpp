#include "evaluator/service/background_reader.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "store/base/guarded.h"
#include "store/base/io_priority.h"

using namespace evalcar;
using protocol::Prefetch;
using service::BackgroundReader;

namespace {

constexpr std::chrono::seconds kLong{20};  // a net; nothing here waits for it

/// What was read, and a read that hangs until it is let go.
struct Reads {
  Guarded<std::vector<std::string>> begun;
  std::counting_semaphore<> starts{0};
  std::counting_semaphore<> goes_on{0};

  Status operator()(const Prefetch& wanted) {
    begun.with([&](auto& all) { all.push_back(wanted.dir); });
    starts.release();
    goes_on.acquire();
    return {};
  }
  std::vector<std::string> all() {
    return begun.with([](const auto& dirs) { return dirs; });
  }
};

Prefetch of(const std::string& dir) { return {.dir = dir, .weights = "regular", .base_model = ""}; }

}  // namespace

TEST_CASE(
    "nobody waits for a read that hangs, and of what is wanted meanwhile the newest is read") {
  Reads reads;
  BackgroundReader reader([&](const Prefetch& wanted, std::stop_token) { return reads(wanted); });

  reader.read(of("/a"));
  reads.starts.acquire();  // it hangs now
  reader.read(of("/b"));
  reader.read(of("/c"));
  CHECK(reads.all() == std::vector<std::string>{"/a"});
  reads.goes_on.release(2);
  reads.starts.acquire();

  CHECK(reader.end(kLong));
  CHECK(reads.all() == std::vector<std::string>{"/a", "/c"});
}

TEST_CASE("a stop reaches what is read, and takes what waits") {
  Reads reads;
  Guarded<std::stop_token> token;
  BackgroundReader reader([&](const Prefetch& wanted, std::stop_token stop) {
    token.with([&](auto& kept) { kept = std::move(stop); });
    return reads(wanted);
  });

  reader.read(of("/a"));
  reads.starts.acquire();
  reader.read(of("/b"));
  reader.stop();
  reads.goes_on.release(2);

  CHECK(token.with([](const auto& kept) { return kept.stop_requested(); }));
  CHECK(reader.end(kLong));
  CHECK(reads.all() == std::vector<std::string>{"/a"});
}

TEST_CASE("a newer wish stops what is read") {
  std::promise<void> begun;
  std::promise<void> stopped;
  std::promise<void> newer;
  BackgroundReader reader([&](const Prefetch& wanted, std::stop_token stop) -> Status {
    if (wanted.dir == "/b") {
      newer.set_value();
      return {};
    }
    begun.set_value();
    const std::stop_callback told(stop, [&] { stopped.set_value(); });
    stopped.get_future().wait();
    return make_error(ErrorCode::kCancelled, "stopped");
  });

  reader.read(of("/a"));
  begun.get_future().wait();
  reader.read(of("/b"));

  CHECK(newer.get_future().wait_for(kLong) == std::future_status::ready);
}

TEST_CASE("whoever ends is told that a read hangs, and that it came back") {
  Reads reads;
  BackgroundReader reader([&](const Prefetch& wanted, std::stop_token) { return reads(wanted); });
  reader.read(of("/a"));
  reads.starts.acquire();

  CHECK_FALSE(reader.end(std::chrono::milliseconds(1)));
  reads.goes_on.release();
  CHECK(reader.end(kLong));
}

TEST_CASE("without a wish there is no thread to wait for, and none comes after the end") {
  bool called = false;
  BackgroundReader reader([&](const Prefetch&, std::stop_token) {
    called = true;
    return Status();
  });

  CHECK(reader.end(std::chrono::milliseconds(0)));
  reader.read(of("/a"));
  CHECK(reader.end(std::chrono::milliseconds(0)));
  CHECK_FALSE(called);
}

TEST_CASE("an exception ends one read, not the reader") {
  Reads reads;
  BackgroundReader reader([&](const Prefetch& wanted, std::stop_token) {
    const Status done = reads(wanted);
    if (wanted.dir == "/a") throw std::runtime_error("made up");
    return done;
  });
  reads.goes_on.release(2);

  reader.read(of("/a"));
  reads.starts.acquire();
  reader.read(of("/b"));
  reads.starts.acquire();

  CHECK(reader.end(kLong));
  CHECK(reads.all() == std::vector<std::string>{"/a", "/b"});
}

TEST_CASE("what reads has the lowest priority, and who asks keeps its own") {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  const int policy = ::sched_getscheduler(0);
  std::promise<std::tuple<int, int, IoPriority>> seen;
  BackgroundReader reader([&](const Prefetch&, std::stop_token) {
    const auto self = static_cast<id_t>(::syscall(SYS_gettid));
    seen.set_value({::sched_getscheduler(0), ::getpriority(PRIO_PROCESS, self), io_priority()});
    return Status();
  });

  reader.read(of("/a"));

  CHECK(seen.get_future().get() ==
        std::tuple(SCHED_IDLE, 19, IoPriority{IoPriority::Class::kIdle}));
  CHECK(::getpriority(PRIO_PROCESS, 0) == before);
  CHECK(::sched_getscheduler(0) == policy);
}
