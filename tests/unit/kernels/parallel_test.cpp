#include "evaluator/kernels/parallel.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

using namespace evalcar::kernels;

namespace {

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

TEST_CASE("every part is called for once, for any counts in any order, again and again") {
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  for (int round = 0; round < 2; ++round) {
    // More counts than are kept, larger ones than are, and one after itself.
    for (const std::int64_t count : {0,  1,  2, 16, 32, 48,  64,  80,   96,   112,  128, 144, 160,
                                     17, 33, 7, 31, 5,  100, 512, 4096, 4097, 9000, 16,  16}) {
      for (const std::int64_t least : {0, 1, 5, 1000}) {
        CAPTURE(count, least);
        CHECK(calls_of(count, least) == once_each(count));
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("work may be shared out by work, with the same count or another") {
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  for (const std::int64_t inner : {40, 41, 42}) {
    std::atomic<int> wrong = 0, calls = 0;
    in_parallel(40, 1, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i, ++calls) {
        for (std::int64_t other = 0; other < 20; ++other)  // all that are kept are others by then
          if (calls_of(inner + 100 * other, 1) != once_each(inner + 100 * other)) ++wrong;
      }
    });
    CHECK(calls == 40);
    CHECK(wrong == 0);
  }
  at::set_num_threads(threads);
}

TEST_CASE("several threads may share out work at a time, and work that throws leaves it so") {
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int round = 0; round < 50; ++round) {
        try {
          in_parallel(30 + t, 100, [](std::int64_t, std::int64_t) { throw 1; });
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
