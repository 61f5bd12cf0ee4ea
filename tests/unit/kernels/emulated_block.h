// A block of threads of evaluator/kernels/thread_block.h on the CPU: each phase runs its threads
// one after the other, in the order asked for. A kernel that is right gives the same bits in any.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace evalcar::testing {

enum class ThreadOrder { kForwards, kBackwards };

template <typename Own>
class EmulatedBlock {
 public:
  EmulatedBlock(int threads, ThreadOrder order)
      : order_(order), own_(static_cast<std::size_t>(threads)) {
    // Registers start with anything: here with NaN.
    static_assert(std::is_trivially_copyable_v<Own>);
    std::memset(own_.data(), 0xff, own_.size() * sizeof(Own));
  }

  template <typename Work>
  void each_thread(Work work) {
    const int threads = static_cast<int>(own_.size());
    for (int i = 0; i < threads; ++i) {
      const int thread = order_ == ThreadOrder::kForwards ? i : threads - 1 - i;
      work(thread, own_[static_cast<std::size_t>(thread)]);
    }
  }
  template <int kLanes, typename Register>
  void sum_lanes(Register register_of) {
    exchange<kLanes>(register_of, [](float a, float b) { return a + b; });
  }
  template <int kLanes, typename Register>
  void max_lanes(Register register_of) {
    exchange<kLanes>(register_of, [](float a, float b) { return std::fmax(a, b); });
  }

 private:
  // As shuffles do it: all read before any writes.
  template <int kLanes, typename Register, typename Join>
  void exchange(Register register_of, Join join) {
    std::vector<float> before(own_.size());
    for (std::size_t apart = kLanes / 2; apart > 0; apart /= 2) {
      for (std::size_t i = 0; i < own_.size(); ++i) before[i] = register_of(own_[i]);
      for (std::size_t i = 0; i < own_.size(); ++i)
        register_of(own_[i]) = join(before[i], before[i ^ apart]);
    }
  }

  ThreadOrder order_;
  std::vector<Own> own_;
};

}  // namespace evalcar::testing
