// A block of threads of evaluator/kernels/thread_block.h on the CPU: each phase runs its threads
// one after the other, in the order asked for. A kernel that is right gives the same bits in any.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "evaluator/kernels/thread_block.h"

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
  template <typename Share, typename Sums>
  void multiply_tiles(Share share_of, Sums sums_of) {
    for (std::size_t first = 0; first < own_.size(); first += kernels::kWarp) {
      float a[16][16], b[16][8];
      for (std::size_t lane = 0; lane < kernels::kWarp; ++lane) {
        const kernels::TileShare share = share_of(own_[first + lane]);
        const std::size_t group = lane / 4, pair = lane % 4 * 2;
        for (std::size_t i = 0; i < 4; ++i)
          widen_pair(share.a[i], &a[group + i % 2 * 8][pair + i / 2 * 8], 1);
        for (std::size_t i = 0; i < 2; ++i) widen_pair(share.b[i], &b[pair + i * 8][group], 8);
      }
      for (std::size_t lane = 0; lane < kernels::kWarp; ++lane) {
        float (&c)[4] = sums_of(own_[first + lane]);
        for (std::size_t i = 0; i < 4; ++i) {
          const std::size_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
          for (std::size_t k = 0; k < 16; ++k) c[i] += a[row][k] * b[k][column];
        }
      }
    }
  }

 private:
  static void widen_pair(std::uint32_t pair, float* to, std::size_t apart) {
    const std::uint32_t bits[] = {pair << 16, pair & 0xffff0000U};
    std::memcpy(to, &bits[0], sizeof(float));
    std::memcpy(to + apart, &bits[1], sizeof(float));
  }
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
