#include "evaluator/kernels/panel_unit.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "evaluator/kernels/aligned_memory.h"

using namespace evalcar::kernels;

namespace {

/// Drawn from a seed: equal for each kernel.
struct Numbers {
  Numbers(std::int64_t many, unsigned seed) : count(many), memory(aligned_memory<float>(many)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < count; ++i) memory[static_cast<std::size_t>(i)] = normal(random);
  }
  float* get() const { return memory.get(); }
  bool operator==(const Numbers& other) const {
    return std::memcmp(get(), other.get(), static_cast<std::size_t>(count) * sizeof(float)) == 0;
  }

  std::int64_t count;
  AlignedMemory<float> memory;
};

constexpr std::int64_t kStride = 48, kResultStride = 37;

struct Sums {
  Numbers sums{40 * kStride, 3}, results{40 * kResultStride, 4};
  bool operator==(const Sums&) const = default;
};

Sums multiplied(const PanelKernels& kernels, std::int64_t rows, std::int64_t panels,
                std::int64_t width, bool adds, bool with_result) {
  const Numbers x(40 * 300, 1), panel(kPanelsAtOnce * kPanelOutputs * 300, 2), bias(32, 5);
  Sums out;
  const PanelResult result{out.results.get(), kResultStride, bias.get(), adds};
  const PanelProduct product{.x = x.get(),
                             .x_stride = 300,
                             .rows = rows,
                             .panel = panel.get(),
                             .panels = panels,
                             .panel_stride = kPanelOutputs * 300,
                             .width = width,
                             .sums = out.sums.get(),
                             .stride = kStride,
                             .adds = adds,
                             .result = with_result ? &result : nullptr};
  Ahead ahead = nothing_ahead(product);
  kernels.multiply(product, ahead);
  return out;
}

}  // namespace

TEST_CASE("every kernel of panels gives the bits of one chain of fused multiply-adds") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  const Numbers x(40 * 300, 1), panel(kPanelsAtOnce * kPanelOutputs * 300, 2), bias(32, 5);
  for (const PanelKernels& kernels : panel_kernels()) {
    for (std::int64_t rows = 1; rows <= 40; ++rows) {
      for (const std::int64_t panels : {1, 2}) {
        for (const std::int64_t width : {0, 1, 3, 4, 31, 256, 300}) {
          for (const auto& [adds, with_result] :
               {std::array{false, false}, {false, true}, {true, false}, {true, true}}) {
            Sums expected;
            for (std::int64_t m = 0; m < rows; ++m) {
              for (std::int64_t i = 0; i < panels * kPanelOutputs; ++i) {
                const float* const column =
                    panel.get() + i / kPanelOutputs * kPanelOutputs * 300 + i % kPanelOutputs;
                float sum = 0;
                for (std::int64_t k = 0; k < width; ++k)
                  sum = std::fma(x.get()[m * 300 + k], column[k * kPanelOutputs], sum);
                float& there = expected.sums.get()[m * kStride + i];
                if (adds) sum += there;
                float& y = expected.results.get()[m * kResultStride + i];
                if (!with_result) there = sum;
                if (with_result) y = adds ? sum + bias.get()[i] + y : sum + bias.get()[i];
              }
            }
            CAPTURE(std::string(kernels.name), rows, panels, width, adds, with_result);
            REQUIRE(multiplied(kernels, rows, panels, width, adds, with_result) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("every kernel of panels makes the same weights of scores") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  struct Weighed {
    Numbers scores{128, 1}, totals{16, 2}, sums{64, 3};
    Numbers largest{1, 4};
    bool operator==(const Weighed&) const = default;
  };
  const auto weighed = [](const PanelKernels& kernels, float scale, float before, float odd) {
    Weighed w;
    for (int i = 0; i < 128; ++i) w.scores.get()[i] *= scale;
    for (int i = 0; i < 128; i += 5) w.scores.get()[i] = odd;
    *w.largest.get() = before;
    kernels.weigh(w.scores.get(), 128, *w.largest.get(), w.totals.get(), w.sums.get(), 64);
    return w;
  };
  for (const float scale : {1.0F, 60.0F, 1e30F}) {
    for (const float before : {kHidden, -100.0F, 3.0F, 1e30F}) {
      for (const float odd : {0.0F, kHidden, kNone, std::numeric_limits<float>::infinity()}) {
        const Weighed best = weighed(panel_kernels().front(), scale, before, odd);
        if (std::isfinite(odd)) {
          for (int i = 0; i < 128; ++i) {
            const float score = i % 5 == 0 ? odd : Weighed().scores.get()[i] * scale;
            const float power = score - *best.largest.get();
            const double expected = power < -126 ? 0 : std::exp2(static_cast<double>(power));
            CAPTURE(scale, before, i, power);
            REQUIRE(std::abs(best.scores.get()[i] - expected) <= 0x1.0p-22 * expected);
          }
        }
        for (const PanelKernels& kernels : panel_kernels()) {
          CAPTURE(std::string(kernels.name), scale, before, odd);
          const Weighed these = weighed(kernels, scale, before, odd);
          if (!std::isnan(odd)) CHECK(these.largest == best.largest);
          if (odd <= 0) CHECK(these == best);
        }
      }
    }
  }
}
