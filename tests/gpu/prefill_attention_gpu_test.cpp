// libtorch's fused attention, as the prefill calls it on a GPU, against the reference that is
// written out: heads that share keys, and a mask, where a block of queries has one left over. On
// the CPU, which checks the check, it is the kernel that reads prompts there.
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "evaluator/models/attention.h"
#include "tests/gpu/prepared_inputs.h"

using namespace evalcar::models;

namespace {

constexpr std::int64_t kKvHeads = 2, kDim = 64, kCapacity = 160;

/// The bed's, or the case is skipped.
at::Device device_or_skip() {
  const auto bed = evalcar::testing::find_test_bed();
  if (!bed.no_device.empty()) SKIP(bed.no_device);
  return at::Device(bed.device);
}

std::vector<Segment> in_rows(std::vector<Segment> segments) {
  std::int64_t rows = 0;
  for (Segment& segment : segments) {
    segment.row = rows;
    rows += segment.length;
  }
  return segments;
}

/// Of a cache that is filled, in its second layer: as near to what is written out as the type is
/// exact, and the same twice.
void check_segments(const std::vector<Segment>& segments, at::Device device, at::ScalarType type,
                    std::int64_t group, std::int64_t dim, std::int64_t window) {
  CAPTURE(type, group, dim, window);
  const auto options = at::TensorOptions().device(device).dtype(type);
  const std::int64_t rows = segments.back().row + segments.back().length;
  const at::Tensor q = at::randn({rows, kKvHeads * group, dim}, options);
  const at::Tensor k = at::randn({rows, kKvHeads, dim}, options);
  const at::Tensor v = at::randn({rows, kKvHeads, dim}, options);
  const at::Tensor before = at::randn({2, 5, kCapacity, kKvHeads, dim}, options);
  const auto attend = [&](AttentionKind kind) {
    KvCache cache{before.clone(), before.clone()};
    return CachedAttention(segments, cache, kind, window)
        .attend(1, q, k, v, window > 0)
        .to(at::kFloat);
  };

  const at::Tensor got = attend(AttentionKind::kSdpa);

  const float tolerance = type == at::kFloat ? 1e-5F : 4e-2F;
  CHECK((got - attend(AttentionKind::kEager)).abs().max().item<float>() <= tolerance);
  CHECK(at::equal(got, attend(AttentionKind::kSdpa)));
}

/// A cache of which the positions before the segments are filled.
struct Case {
  Case(const at::TensorOptions& where, std::int64_t group, const Segment& one)
      : segment(one),
        options(where),
        q(at::randn({one.length, kKvHeads * group, kDim}, options)),
        k(at::randn({one.length, kKvHeads, kDim}, options)),
        v(at::randn({one.length, kKvHeads, kDim}, options)),
        before(at::randn({1, 1, kCapacity, kKvHeads, kDim}, options)) {}
  at::Tensor attend(AttentionKind kind, std::int64_t window) const {
    KvCache cache{before.clone(), before.clone()};
    return CachedAttention(std::vector{segment}, cache, kind, window)
        .attend(0, q, k, v, window > 0)
        .to(at::kFloat);
  }

  Segment segment;
  at::TensorOptions options;
  at::Tensor q, k, v, before;
};

}  // namespace

TEST_CASE("prompts that a GPU reads together see each its own slot, in whatever order they stand") {
  const at::Device device = device_or_skip();
  // One from its first token on, ones that go on, one of a single token, and the branches of one.
  const std::vector<Segment> segments = in_rows(
      {{.slot = 2, .start = 7, .length = 33},
       {.slot = 0, .start = 0, .length = 65},
       {.slot = 3, .start = 90, .length = 1},
       {.slot = 1, .start = 100, .length = 6, .shared = 100, .own = {100, 100, 100, 103, 103, 103}},
       {.slot = 4, .start = 3, .length = 150}});
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t group : {1, 7}) {
      for (const std::int64_t dim : {64, 128}) {
        for (const std::int64_t window : {0, 20})
          check_segments(segments, device, type, group, dim, window);
      }
    }
  }
}

TEST_CASE("a last row of each of several prompts sees its own slot on a GPU, wherever that is") {
  const at::Device device = device_or_skip();
  // As many rows as segments, and yet no pass of decoding: those are of the slots 0, 1, …
  const std::vector<Segment> segments = in_rows({{.slot = 3, .start = 90, .length = 1},
                                                 {.slot = 1, .start = 0, .length = 1},
                                                 {.slot = 4, .start = 130, .length = 1}});
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t group : {1, 7}) {
      for (const std::int64_t window : {0, 20})
        check_segments(segments, device, type, group, kDim, window);
    }
  }
}

TEST_CASE("every row of a prefill piece on a GPU sees what the written-out attention lets it see") {
  const at::Device device = device_or_skip();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t group : {1, 3, 7}) {
      for (const std::int64_t length : {2, 33, 64, 65, 129}) {
        for (const std::int64_t start : {0, 7}) {
          for (const std::int64_t window : {0, 5}) {
            CAPTURE(type, group, length, start, window);
            const Case one(at::TensorOptions().device(device).dtype(type), group,
                           {.slot = 0, .start = start, .length = length, .row = 0});

            const at::Tensor got = one.attend(AttentionKind::kSdpa, window);

            const at::Tensor expected = one.attend(AttentionKind::kEager, window);
            const float tolerance = type == at::kFloat ? 1e-5F : 4e-2F;
            CHECK((got - expected).abs().max().item<float>() <= tolerance);
          }
        }
      }
    }
  }
}
