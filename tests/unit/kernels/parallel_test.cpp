#include "evaluator/kernels/parallel.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

using namespace evalcar::kernels;

namespace {

/// libtorch's threads as they were before, in the end.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

// How often each of `count` parts was called for.
std::vector<int> calls_of(std::int64_t count, std::int64_t least) {
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
  in_parallel(count, least, [&](std::int64_t first, std::int64_t part) {
    for (std::int64_t i = first; i < first + part; ++i) ++calls[static_cast<std::size_t>(i)];
  });
  return {calls.begin(), calls.end()};
}

std::vector<int> once_each(std::int64_t count) {
  return std::vector<int>(static_cast<std::size_t>(count), 1);
}

}  // namespace

TEST_CASE("every part is called for once, for any counts in any order and any threads") {
  for (const int threads : {1, 3, 2, 3}) {
    const ThreadCount set(threads);
    for (const std::int64_t count : {0, 1, 2, 16, 32, 160, 17, 7, 31, 5, 100, 4096, 9000, 16, 16}) {
      for (const std::int64_t least : {0, 1, 5, 1000}) {
        CAPTURE(threads, count, least);
        CHECK(calls_of(count, least) == once_each(count));
      }
    }
  }
}

TEST_CASE("several threads take parts at a time") {
  const ThreadCount set(2);
  std::mutex mutex;
  std::condition_variable arrived;
  std::set<std::thread::id> here;
  in_parallel(8, 1, [&](std::int64_t, std::int64_t) {
    std::unique_lock lock(mutex);
    here.insert(std::this_thread::get_id());
    arrived.notify_all();
    arrived.wait_for(lock, std::chrono::seconds(20), [&] { return here.size() == 2; });
  });
  CHECK(here.size() == 2);
}

TEST_CASE("parts are as large as was asked for, but for the last") {
  const ThreadCount set(3);
  for (const std::int64_t least : {1, 7, 50}) {
    std::mutex mutex;
    std::vector<std::int64_t> small;
    in_parallel(200, least, [&](std::int64_t first, std::int64_t count) {
      const std::scoped_lock lock(mutex);
      if (count < least && first + count < 200) small.push_back(first);
    });
    CAPTURE(least);
    CHECK(small.empty());
  }
}

TEST_CASE("the first parts are large, and the last small") {
  const ThreadCount set(2);
  std::mutex mutex;
  std::map<std::int64_t, std::int64_t> parts;
  in_parallel(64, 1, [&](std::int64_t first, std::int64_t count) {
    const std::scoped_lock lock(mutex);
    parts[first] = count;
  });
  CHECK(parts.begin()->second == 16);
  CHECK(parts.rbegin()->second == 1);
}

TEST_CASE("work that shares out work does that part by itself") {
  const ThreadCount set(3);
  std::atomic<int> wrong = 0, calls = 0;
  in_parallel(40, 1, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i, ++calls) {
      if (calls_of(40 + i, 1) != once_each(40 + i)) ++wrong;
    }
  });
  CHECK(calls == 40);
  CHECK(wrong == 0);
}

TEST_CASE("what work throws arrives on any of several threads, and leaves nothing behind") {
  const ThreadCount set(3);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int round = 0; round < 50; ++round) {
        try {
          in_parallel(30 + t, 1, [](std::int64_t first, std::int64_t) {
            if (first > 5) throw 1;
          });
          ++wrong;
        } catch (int) {
        }
        if (calls_of(30 + t, 1) != once_each(30 + t)) ++wrong;
      }
    });
  }
  threads.clear();
  CHECK(wrong == 0);
}
