#include "evaluator/engine/picture_pages.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <thread>
#include <vector>

using namespace evalcar::engine;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::size_t kQuarter = 65536;  // float32 of a quarter of a MiB

}  // namespace

TEST_CASE("memory for pictures is used again once nobody has it") {
  PicturePages pages(at::kCPU, 8 * kMiB);
  const float* first = nullptr;
  {
    const auto values = pages.take(kQuarter);
    std::fill_n(values.get(), kQuarter, 1.0F);
    first = values.get();
    const auto same = values;  // has it, too
    CHECK(pages.take(kQuarter).get() != first);
  }
  CHECK(pages.bytes() == kMiB / 2);
  CHECK(pages.take(kQuarter).get() != nullptr);
  const auto again = pages.take(kQuarter), other = pages.take(kQuarter);
  CHECK((again.get() == first || other.get() == first));
  CHECK(again.get() != other.get());
  CHECK(pages.bytes() == kMiB / 2);
}

TEST_CASE("a picture takes the smallest memory that holds it") {
  PicturePages pages(at::kCPU, 8 * kMiB);
  auto small = pages.take(kQuarter - 5), large = pages.take(8 * kQuarter),
       middle = pages.take(kQuarter + 1);
  const float* const smallest = small.get();
  const float* const next = middle.get();
  large.reset();
  small.reset();
  middle.reset();
  CHECK(pages.take(kQuarter).get() == smallest);  // a whole quarter of a MiB is there
  CHECK(pages.take(2 * kQuarter).get() == next);
  CHECK(pages.bytes() == 2 * kMiB + kMiB / 2 + kMiB / 4);
}

TEST_CASE("no more memory than allowed is kept for pictures, and every picture has some") {
  PicturePages pages(at::kCPU, kMiB);
  std::vector<std::shared_ptr<float[]>> held;
  for (std::size_t i = 0; i < 9; ++i) {
    held.push_back(pages.take(kQuarter));
    std::fill_n(held.back().get(), kQuarter, static_cast<float>(i));
  }
  CHECK(pages.bytes() == kMiB);
  for (std::size_t i = 0; i < 9; ++i)
    CHECK(std::all_of(held[i].get(), held[i].get() + kQuarter,
                      [i](float each) { return each == static_cast<float>(i); }));
  held.clear();
  CHECK(pages.take(4 * kQuarter + 1) != nullptr);  // larger than all that is allowed
  CHECK(pages.bytes() == kMiB);

  PicturePages none(at::kCPU, 0);
  CHECK(none.take(1) != nullptr);
  CHECK(none.bytes() == 0);
}

TEST_CASE("threads never share the memory of a picture") {
  PicturePages pages(at::kCPU, 2 * kMiB);
  std::atomic<int> mixed = 0;
  const auto work = [&](int thread) {
    for (int i = 0; i < 300; ++i) {
      const std::size_t count = kQuarter >> static_cast<unsigned>(i % 4);
      const auto values = pages.take(count);
      const auto mine = static_cast<float>(1000 * thread + i);
      std::fill_n(values.get(), count, mine);
      std::this_thread::yield();
      if (!std::all_of(values.get(), values.get() + count,
                       [mine](float each) { return each == mine; }))
        ++mixed;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  }
  CHECK(mixed == 0);
  CHECK(pages.bytes() <= 2 * kMiB);
}
