#include "evaluator/engine/picture_pages.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

using namespace evalcar::engine;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kMost = 2 * PicturePages::kSlab;
constexpr std::size_t kSlabNumbers = PicturePages::kSlab / sizeof(float);

std::uint64_t much_free() { return 1024 * kMiB; }

bool holds(const std::shared_ptr<float[]>& values, std::size_t count, float number) {
  return std::all_of(values.get(), values.get() + count,
                     [number](float each) { return each == number; });
}

/// Devices of no kind that libtorch knows, of which it sees which one is current as an event ends.
class Devices : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

  static Devices& registered() {
    static Devices devices;
    static const c10::impl::DeviceGuardImplRegistrar registrar(kType, &devices);
    return devices;
  }

  mutable std::vector<c10::DeviceIndex> seen;  ///< by ends of events
  bool is_lost = false;

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    TORCH_CHECK(!is_lost, "the device is lost");
    return {kType, std::exchange(current_, device.index())};
  }
  c10::Device getDevice() const override { return {kType, current_}; }
  void setDevice(c10::Device device) const override { current_ = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_ = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    static int token = 0;
    *event = &token;
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) seen.push_back(current_);
  }
  void synchronizeStream(const c10::Stream&) const override {}

 private:
  static thread_local c10::DeviceIndex current_;
};
thread_local c10::DeviceIndex Devices::current_ = 0;

}  // namespace

TEST_CASE("events end while their own device is the current one, not the first") {
  Devices& devices = Devices::registered();
  devices.seen.clear();
  {
    PicturePages pages(c10::Device(Devices::kType, 1), kMost, &much_free);
    const auto values = pages.take(1);
    REQUIRE(pages.holds(values.get()));
    pages.sent(values.get());
  }
  CHECK(devices.seen == std::vector<c10::DeviceIndex>{1});
  CHECK(devices.getDevice().index() == 0);
}

TEST_CASE("beside a device that is lost pictures lie in other memory") {
  Devices& devices = Devices::registered();
  devices.is_lost = true;
  {
    PicturePages pages(c10::Device(Devices::kType, 1), kMost, &much_free);
    CHECK_FALSE(pages.holds(pages.take(1).get()));
  }
  devices.is_lost = false;
}

TEST_CASE("memory for pictures is used again once nobody has it") {
  PicturePages pages(at::kCPU, kMost, &much_free);
  CHECK(pages.bytes() == 0);
  const float* first = nullptr;
  {
    const auto values = pages.take(kSlabNumbers);
    first = values.get();
    const auto same = values;  // has it, too
    CHECK(pages.holds(first));
    CHECK(pages.take(kSlabNumbers).get() != first);
  }
  CHECK(pages.bytes() == kMost);
  CHECK_FALSE(pages.holds(first));
  const auto again = pages.take(kSlabNumbers), other = pages.take(kSlabNumbers);
  CHECK((again.get() == first || other.get() == first));
  CHECK(again.get() != other.get());
  CHECK(pages.bytes() == kMost);
}

TEST_CASE("pictures of other sizes lie where earlier ones have lain") {
  PicturePages pages(at::kCPU, PicturePages::kSlab, &much_free);
  std::vector<std::shared_ptr<float[]>> held;
  for (std::size_t i = 0; i < 64; ++i) {
    held.push_back(pages.take(kSlabNumbers / 64));
    CHECK(pages.holds(held.back().get()));
    std::fill_n(held.back().get(), kSlabNumbers / 64, static_cast<float>(i));
  }
  CHECK_FALSE(pages.holds(pages.take(1).get()));  // full
  for (std::size_t i = 0; i < 64; ++i)
    CHECK(holds(held[i], kSlabNumbers / 64, static_cast<float>(i)));
  held.erase(held.begin() + 16, held.begin() + 48);  // a half in the middle
  const auto half = pages.take(kSlabNumbers / 2);
  CHECK(pages.holds(half.get()));
  std::fill_n(half.get(), kSlabNumbers / 2, -1.0F);
  for (std::size_t i = 0; i < held.size(); ++i)
    CHECK(holds(held[i], kSlabNumbers / 64, static_cast<float>(i < 16 ? i : i + 32)));
  held.clear();
  CHECK_FALSE(pages.holds(pages.take(kSlabNumbers).get()));
}

TEST_CASE("no more memory than allowed is kept for pictures, and every picture has some") {
  PicturePages pages(at::kCPU, kMost + kMiB, &much_free);
  const std::size_t third = kSlabNumbers / 3 - 100;
  std::vector<std::shared_ptr<float[]>> held;
  for (std::size_t i = 0; i < 9; ++i) {
    held.push_back(pages.take(third));
    std::fill_n(held.back().get(), third, static_cast<float>(i));
    CHECK(pages.holds(held.back().get()) == (i < 6));
  }
  CHECK(pages.bytes() == kMost);
  for (std::size_t i = 0; i < 9; ++i) CHECK(holds(held[i], third, static_cast<float>(i)));
  held.clear();
  const auto large = pages.take(kSlabNumbers + 1);
  std::fill_n(large.get(), kSlabNumbers + 1, 1.0F);
  CHECK_FALSE(pages.holds(large.get()));
  CHECK(pages.bytes() == kMost);
}

TEST_CASE("memory that the host has little of is not locked") {
  std::uint64_t free = 4 * PicturePages::kSlab - 1;
  PicturePages pages(at::kCPU, kMost, [&free] { return free; });
  CHECK_FALSE(pages.holds(pages.take(100).get()));
  CHECK(pages.bytes() == 0);
  ++free;
  const auto first = pages.take(100);
  CHECK(pages.holds(first.get()));
  CHECK(pages.bytes() == PicturePages::kSlab);
  free = 7 * PicturePages::kSlab - 1;  // the first slab is no longer among it
  CHECK_FALSE(pages.holds(pages.take(kSlabNumbers).get()));
  ++free;
  CHECK(pages.holds(pages.take(kSlabNumbers).get()));
  CHECK(pages.bytes() == 2 * PicturePages::kSlab);
}

TEST_CASE("threads never share the memory of a picture") {
  PicturePages pages(at::kCPU, PicturePages::kSlab, &much_free);
  std::atomic<int> mixed = 0, kept = 0;
  const auto work = [&](int thread) {
    for (int i = 0; i < 300; ++i) {
      const std::size_t count = std::size_t{200'000} >> static_cast<unsigned>(i % 4);
      const auto values = pages.take(count);
      const auto mine = static_cast<float>(1000 * thread + i);
      std::fill_n(values.get(), count, mine);
      std::this_thread::yield();
      if (!holds(values, count, mine)) ++mixed;
      if (pages.holds(values.get())) ++kept;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  }
  CHECK(mixed == 0);
  CHECK(kept > 300);
  CHECK(pages.bytes() == PicturePages::kSlab);
}
