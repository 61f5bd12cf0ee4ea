#include "evaluator/kernels/panel_unit.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "evaluator/kernels/aligned_memory.h"

using namespace evalcar::kernels;

namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

/// Drawn from a seed: equal for each kernel.
struct Numbers {
  Numbers(std::int64_t many, unsigned seed) : count(many), memory(aligned_memory<float>(many)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < count; ++i) memory[static_cast<std::size_t>(i)] = normal(random);
  }
  float* get() const { return memory.get(); }
  float& operator[](std::int64_t i) const { return memory[static_cast<std::size_t>(i)]; }
  bool operator==(const Numbers& other) const {
    return std::memcmp(get(), other.get(), static_cast<std::size_t>(count) * sizeof(float)) == 0;
  }

  std::int64_t count;
  AlignedMemory<float> memory;
};

constexpr std::int64_t kRows = 40, kWidth = 300, kStride = 48, kResultStride = 37;

/// What is asked of a kernel.
struct Asked {
  std::int64_t rows, panels, width;
  bool adds;         ///< to the sums
  bool with_result;  ///< which the sums become, with a bias and added to it, or without
  bool with_bias;
  bool adds_to_result;
};

struct Inputs {
  Numbers x{kRows * kWidth, 1}, panels{kMostPanels * kPanelOutputs * kWidth, 2}, bias{32, 5};
};

struct Sums {
  Numbers sums{kRows * kStride, 3}, results{kRows * kResultStride, 4};
  bool operator==(const Sums&) const = default;
};

Sums multiplied(const PanelKernels& kernels, const Inputs& inputs, const Asked& asked) {
  Sums out;
  const PanelResult result{.y = out.results.get(),
                           .stride = kResultStride,
                           .bias = asked.with_bias ? inputs.bias.get() : nullptr,
                           .adds = asked.adds_to_result};
  const PanelProduct product{.x = inputs.x.get(),
                             .x_stride = kWidth,
                             .rows = asked.rows,
                             .panel = inputs.panels.get(),
                             .panels = asked.panels,
                             .panel_stride = kPanelOutputs * kWidth,
                             .width = asked.width,
                             .sums = out.sums.get(),
                             .stride = kStride,
                             .adds = asked.adds,
                             .result = asked.with_result ? &result : nullptr};
  Ahead ahead = nothing_ahead(product);
  kernels.multiply(product, ahead);
  return out;
}

Sums chains(const Inputs& inputs, const Asked& asked) {
  Sums out;
  for (std::int64_t m = 0; m < asked.rows; ++m) {
    for (std::int64_t i = 0; i < asked.panels * kPanelOutputs; ++i) {
      const float* const column =
          inputs.panels.get() + i / kPanelOutputs * kPanelOutputs * kWidth + i % kPanelOutputs;
      float sum = 0;
      for (std::int64_t k = 0; k < asked.width; ++k)
        sum = std::fma(inputs.x[m * kWidth + k], column[k * kPanelOutputs], sum);
      float& there = out.sums[m * kStride + i];
      float& y = out.results[m * kResultStride + i];
      if (asked.adds) sum += there;
      if (!asked.with_result) {
        there = sum;
        continue;
      }
      if (asked.with_bias) sum += inputs.bias[i];
      y = asked.adds_to_result ? sum + y : sum;
    }
  }
  return out;
}

/// A query's scores and what there is of it.
struct Weighed {
  Weighed(std::int64_t width, std::int64_t dim) : scores(width, 1), totals(16, 2), sums(dim, 3) {}
  bool operator==(const Weighed&) const = default;

  Numbers scores, totals, sums, largest{1, 4};
};

/// 2^x, and 0 below 2^-126.
double weight_of(float power) { return power < -126 ? 0 : std::exp2(static_cast<double>(power)); }

bool is_near(float found, double expected, double rounding) {
  return std::abs(static_cast<double>(found) - expected) <= rounding * std::abs(expected);
}

/// What is wrong with `w`, made of `before`; "" where nothing is. Scores are numbers, or hidden.
std::string wrong_in(const Weighed& w, const Weighed& before) {
  const std::int64_t width = w.scores.count;
  const float largest = std::max(
      before.largest[0], *std::max_element(before.scores.get(), before.scores.get() + width));
  if (w.largest[0] != largest) return "largest " + std::to_string(w.largest[0]);
  const float base = largest == kHidden ? 0 : largest;
  const double kept = largest == before.largest[0] ? 1 : weight_of(before.largest[0] - largest);
  std::array<double, 16> totals{};
  for (std::int64_t i = 0; i < width; ++i) {
    const double expected = weight_of(before.scores[i] - base);
    totals[static_cast<std::size_t>(i % 16)] += expected;
    if (!is_near(w.scores[i], expected, 0x1.0p-22)) return "weight " + std::to_string(i);
  }
  for (std::int64_t i = 0; i < 16; ++i) {
    const double old = before.totals[i] * kept, more = totals[static_cast<std::size_t>(i)];
    const double room = 0x1.0p-20 * (std::abs(old) + more);
    if (std::abs(w.totals[i] - (old + more)) > room) return "total " + std::to_string(i);
  }
  for (std::int64_t i = 0; i < w.sums.count; ++i) {
    if (!is_near(w.sums[i], before.sums[i] * kept, 0x1.0p-21)) return "sum " + std::to_string(i);
  }
  return "";
}

}  // namespace

TEST_CASE("every kernel of panels gives the bits of one chain of fused multiply-adds") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  const Inputs inputs;
  for (std::int64_t rows = 1; rows <= kRows; ++rows) {
    for (const std::int64_t width : {0, 1, 3, 4, 31, 256, 300}) {
      for (unsigned flags = 0; flags < 16; ++flags) {
        if (width > 4 && flags != 15 && (flags + rows) % 5 != 0) continue;  // some of each
        const Asked asked{.rows = rows,
                          .panels = kMostPanels,
                          .width = width,
                          .adds = (flags & 1U) != 0,
                          .with_result = (flags & 2U) != 0,
                          .with_bias = (flags & 4U) != 0,
                          .adds_to_result = (flags & 8U) != 0};
        for (const PanelKernels& kernels : panel_kernels()) {
          for (std::int64_t panels = 1; panels <= kernels.panels; ++panels) {
            Asked of_these = asked;
            of_these.panels = panels;
            CAPTURE(std::string(kernels.name), rows, panels, width, flags);
            REQUIRE(multiplied(kernels, inputs, of_these) == chains(inputs, of_these));
          }
        }
      }
    }
  }
}

TEST_CASE("sums may become the result where they are, as what fills no panel does") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  const Inputs inputs;
  for (const PanelKernels& kernels : panel_kernels()) {
    const Asked asked{.rows = 30, .panels = kernels.panels, .width = 44, .adds = true};
    Sums expected = chains(inputs, asked), found;
    for (std::int64_t i = 0; i < 30 * kStride; ++i) {
      if (i % kStride < kernels.panels * kPanelOutputs)
        expected.sums[i] += inputs.bias[i % kStride];
    }
    const PanelResult result{found.sums.get(), kStride, inputs.bias.get()};
    const PanelProduct product{.x = inputs.x.get(),
                               .x_stride = kWidth,
                               .rows = 30,
                               .panel = inputs.panels.get(),
                               .panels = kernels.panels,
                               .panel_stride = kPanelOutputs * kWidth,
                               .width = 44,
                               .sums = found.sums.get(),
                               .stride = kStride,
                               .adds = true,
                               .result = &result};
    Ahead ahead = nothing_ahead(product);
    kernels.multiply(product, ahead);
    CAPTURE(std::string(kernels.name));
    CHECK(found == expected);
  }
}

TEST_CASE(
    "what is asked for ahead of panels moves through all that it was told, however few rows") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  const Inputs inputs;
  for (const PanelKernels& kernels : panel_kernels()) {
    for (const std::int64_t rows : {7, 12, 13, 40}) {
      Sums out;
      const PanelProduct product{.x = inputs.x.get(),
                                 .x_stride = kWidth,
                                 .rows = rows,
                                 .panel = inputs.panels.get(),
                                 .panels = kernels.panels,
                                 .panel_stride = kPanelOutputs * kWidth,
                                 .width = 256,
                                 .sums = out.sums.get(),
                                 .stride = kStride};
      // As much as the panels themselves: float32's next part.
      const auto at = reinterpret_cast<std::uintptr_t>(inputs.panels.get());
      Ahead ahead{.next = at, .end = at + 256 * 64, .other = 64, .bytes = 64};
      kernels.multiply(product, ahead);
      CAPTURE(std::string(kernels.name), rows);
      CHECK(ahead.next == ahead.end);
    }
  }
}

TEST_CASE("every kernel of panels makes the same weights of scores, and the right ones") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  for (const auto& [width, dim] : {std::array{128, 64}, {16, 16}, {112, 80}}) {
    for (const float scale : {1.0F, 60.0F, 1e30F}) {
      for (const float before : {kHidden, -100.0F, 3.0F, 1e30F}) {
        for (const std::int64_t hidden : {1, 5, 128}) {  // all, every fifth, the first
          const auto made = [&, width = width, dim = dim] {
            Weighed w(width, dim);
            for (std::int64_t i = 0; i < width; ++i) {
              w.scores[i] *= scale;
              if (i % hidden == 0) w.scores[i] = kHidden;
            }
            w.largest[0] = before;
            return w;
          };
          for (const PanelKernels& kernels : panel_kernels()) {
            Weighed found = made();
            kernels.weigh(found.scores.get(), width, found.largest[0], found.totals.get(),
                          found.sums.get(), dim);
            Weighed best = made();
            panel_kernels().front().weigh(best.scores.get(), width, best.largest[0],
                                          best.totals.get(), best.sums.get(), dim);
            CAPTURE(std::string(kernels.name), width, scale, before, hidden);
            CHECK(wrong_in(found, made()).empty());
            CHECK(found == best);
          }
        }
      }
    }
  }
}

TEST_CASE("an infinite score is the largest, and leaves no weight a number") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  for (const PanelKernels& kernels : panel_kernels()) {
    for (std::int64_t at = 0; at < 32; ++at) {
      Weighed w(32, 16);
      w.scores[at] = std::numeric_limits<float>::infinity();
      kernels.weigh(w.scores.get(), 32, w.largest[0], w.totals.get(), w.sums.get(), 16);
      CAPTURE(std::string(kernels.name), at);
      CHECK(w.largest[0] == std::numeric_limits<float>::infinity());
      CHECK(std::isnan(w.scores[at]));
      CHECK(std::isnan(w.totals[at % 16]));
    }
  }
}

TEST_CASE("a score that is no number makes no weight, and takes nothing from the largest") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  for (const PanelKernels& kernels : panel_kernels()) {
    for (std::int64_t none = 0; none < 48; ++none) {
      Weighed w(48, 16);
      const Weighed before(48, 16);
      float largest = w.largest[0] = -5;
      w.scores[none] = std::numeric_limits<float>::quiet_NaN();
      for (std::int64_t i = 0; i < 48; ++i)
        if (i != none) largest = std::max(largest, before.scores[i]);
      kernels.weigh(w.scores.get(), 48, w.largest[0], w.totals.get(), w.sums.get(), 16);
      CAPTURE(std::string(kernels.name), none);
      CHECK(w.largest[0] == largest);
      CHECK(std::isnan(w.scores[none]));
      CHECK(std::isnan(w.totals[none % 16]));
      CHECK(std::isfinite(w.totals[(none + 1) % 16]));
    }
  }
}
