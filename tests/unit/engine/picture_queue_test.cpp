#include "evaluator/engine/picture_queue.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <latch>
#include <new>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace evalcar;
using namespace evalcar::engine;

namespace {

constexpr std::uint64_t kPictureBytes = 4 * 588 * sizeof(float);  // 2x2 patches

/// Pictures of one colour, 28x28, told apart by it. Counts what is in the making or made.
class Colours final : public ImageSource {
 public:
  explicit Colours(std::size_t count) : count_(count) {}
  std::size_t size() const override { return count_; }
  std::uint64_t key_of(std::size_t index) const override { return index % 100; }
  vision::PreparedSize size_of(std::size_t) const override { return {1, 2, 2}; }
  Result<vision::PreparedImage> load(std::size_t index) const override {
    const int outstanding = ++begun - taken;
    int seen = most;
    while (outstanding > seen && !most.compare_exchange_weak(seen, outstanding)) {
    }
    if (hold != nullptr && index == 0) {
      held.count_down();
      hold->wait();
    }
    if (index == broken) return make_error(ErrorCode::kCorruption, "picture is torn");
    if (index == huge) throw std::bad_alloc();
    return vision::PreparedImage{
        1,  2,  index == wrong ? 4 : 2,
        28, 28, std::vector<std::uint8_t>(28 * 28 * 3, static_cast<std::uint8_t>(index))};
  }

  std::size_t broken = ~std::size_t{0}, huge = ~std::size_t{0}, wrong = ~std::size_t{0};
  std::latch* hold = nullptr;  ///< picture 0 waits for it
  mutable std::latch held{1};  ///< picture 0 does wait
  mutable std::atomic<int> begun = 0, taken = 0, most = 0;

 private:
  std::size_t count_;
};

std::vector<PicturePlace> one_pack(std::size_t pictures) {
  std::vector<PicturePlace> order;
  for (std::size_t i = 0; i < pictures; ++i) order.push_back({0, i});
  return order;
}

/// The byte that the first value of the rows stands for.
int colour_of(const PatchRows& rows) {
  const vision::ProcessorSettings settings;
  vision::PreparedImage image{1, 2, 2, 28, 28, std::vector<std::uint8_t>(28 * 28 * 3)};
  std::vector<float> values(4 * 588);
  for (int colour = 0; colour < 256; ++colour) {
    std::fill(image.rgb.begin(), image.rgb.end(), static_cast<std::uint8_t>(colour));
    vision::write_patches(image, settings, values.data());
    if (values[0] == rows.values[0] && values.back() == rows.values[4 * 588 - 1]) return colour;
  }
  return -1;
}

}  // namespace

TEST_CASE("pictures come in their order and are the same, however many threads make them") {
  const int threads = GENERATE(0, 1, 4);
  const auto room = GENERATE(as<std::uint64_t>{}, 1, 3, 1000);
  const Colours images(60);
  const vision::ProcessorSettings processor;
  std::atomic<int> prepared = 0;
  PictureQueue queue(
      images, processor, one_pack(60),
      {.threads = threads, .bytes = room * kPictureBytes, .prepared = [&] { ++prepared; }});

  for (std::size_t i = 0; i < 60; ++i) {
    const auto rows = queue.take({0, i}, {});
    ++images.taken;
    REQUIRE(rows.has_value());
    REQUIRE(rows->patches == 4);
    REQUIRE(rows->elements == 588);
    REQUIRE(colour_of(*rows) == static_cast<int>(i));
  }

  CHECK(prepared == 60);
  CHECK(images.begun == 60);
  // One more than there is room for: the picture that was taken is counted a moment later.
  CHECK(images.most <= static_cast<int>(room) + 1);
}

TEST_CASE(
    "pictures that are passed over are dropped, and one out of the order is made on the spot") {
  const int threads = GENERATE(0, 2);
  const Colours images(40);
  const vision::ProcessorSettings processor;
  std::vector<PicturePlace> order;
  for (std::size_t i = 0; i < 40; ++i) order.push_back({i / 10, i});
  PictureQueue queue(images, processor, order, {.threads = threads, .bytes = 5 * kPictureBytes});

  CHECK(colour_of(*queue.take({0, 4}, {})) == 4);
  CHECK(colour_of(*queue.take({2, 3}, {})) == 3);  // shared with a pack that was left out
  CHECK(colour_of(*queue.take({2, 25}, {})) == 25);
  CHECK(colour_of(*queue.take({3, 39}, {})) == 39);
}

TEST_CASE("what is wrong with a picture is told for that picture") {
  const int threads = GENERATE(0, 2);
  Colours images(6);
  images.broken = 2;
  images.huge = 3;
  images.wrong = 4;
  const vision::ProcessorSettings processor;
  PictureQueue queue(images, processor, one_pack(6), {.threads = threads});

  CHECK(queue.take({0, 1}, {}).has_value());
  CHECK(queue.take({0, 2}, {}).error().code == ErrorCode::kCorruption);
  CHECK(queue.take({0, 3}, {}).error().message == "out of memory while preparing picture 3");
  CHECK(queue.take({0, 4}, {}).error().message == "picture 4 is not of the promised size");
  CHECK(queue.take({0, 5}, {}).has_value());
}

TEST_CASE("a stop ends the wait for a picture that does not come") {
  Colours images(3);
  std::latch hold(1);
  images.hold = &hold;
  const vision::ProcessorSettings processor;
  {
    PictureQueue queue(images, processor, one_pack(3), {.threads = 1, .bytes = kPictureBytes});
    images.held.wait();
    std::stop_source stop;
    std::jthread canceller([&] { stop.request_stop(); });

    const auto rows = queue.take({0, 0}, stop.get_token());

    REQUIRE_FALSE(rows.has_value());
    CHECK(rows.error().code == ErrorCode::kCancelled);
    hold.count_down();
  }
  CHECK(images.begun <= 2);
}

TEST_CASE("pictures lie in the memory that the queue was given, and one without any is an error") {
  const int threads = GENERATE(0, 2);
  const Colours images(12);
  const vision::ProcessorSettings processor;
  std::atomic<int> given = 0, returned = 0;
  const PatchMemory memory = [&](std::size_t count) -> std::shared_ptr<float[]> {
    REQUIRE(count * sizeof(float) == kPictureBytes);
    if (++given == 5) throw std::bad_alloc();
    return {new float[count], [&](const float* values) {
              delete[] values;
              ++returned;
            }};
  };
  {
    PictureQueue queue(images, processor, one_pack(12), {.threads = threads, .memory = memory});
    int failed = 0;
    for (std::size_t i = 0; i < 10; ++i) {
      const auto rows = queue.take({0, i}, {});
      if (rows) {
        CHECK(colour_of(*rows) == static_cast<int>(i));
      } else {
        CHECK(rows.error().code == ErrorCode::kUnavailable);
        ++failed;
      }
    }
    CHECK(failed == 1);
  }
  CHECK(returned == given - 1);  // those that nobody took, too
}
