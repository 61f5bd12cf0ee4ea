#include "evaluator/models/packed_prefill.h"

#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <tuple>
#include <vector>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

namespace evalcar::models {
namespace {

// What libtorch's flash attention asks for: sm_80 or newer, whole vectors, places in 32 bits.
bool takes([[maybe_unused]] const KvCache& cache) {
#ifdef EVALCAR_CUDA
  const at::Tensor& keys = cache.keys;
  return keys.is_cuda() && keys.scalar_type() == at::kBFloat16 &&
         keys.select(0, 0).is_contiguous() && keys.size(4) % 8 == 0 && keys.size(4) <= 256 &&
         cache.slots() * cache.capacity() <= INT32_MAX &&
         at::cuda::getDeviceProperties(keys.get_device())->major >= 8;
#else
  return false;
#endif
}

}  // namespace

std::optional<PackedPrefill> pack_prefill(std::span<const Segment> segments, const KvCache& cache) {
  const auto branches = [](const Segment& segment) { return !segment.own.empty(); };
  if (!takes(cache) || std::ranges::all_of(segments, branches)) return std::nullopt;
  std::vector<std::int32_t> rows{0}, slots, lengths;
  PackedPrefill packed;
  for (const Segment& segment : segments) {
    const std::int64_t length = segment.start + segment.length;
    rows.push_back(static_cast<std::int32_t>(segment.row + segment.length));
    slots.push_back(static_cast<std::int32_t>(segment.slot * cache.capacity()));
    lengths.push_back(static_cast<std::int32_t>(length));
    packed.most_rows = std::max(packed.most_rows, segment.length);
    packed.longest = std::max(packed.longest, length);
  }
  // Where the next one would begin: the kernel goes by `lengths`, but wants as many of these.
  slots.push_back(static_cast<std::int32_t>(cache.slots() * cache.capacity()));
  const auto on_device = [&](const std::vector<std::int32_t>& values) {
    return at::tensor(at::ArrayRef<std::int32_t>(values), at::TensorOptions().dtype(at::kInt))
        .to(cache.keys.device());
  };
  packed.row_begins = on_device(rows);
  packed.slot_begins = on_device(slots);
  packed.lengths = on_device(lengths);
  return packed;
}

at::Tensor attend_packed(const PackedPrefill& packed, const at::Tensor& q, const at::Tensor& keys,
                         const at::Tensor& values, std::int64_t window) {
  const auto line = [](const at::Tensor& cache) { return cache.flatten(0, 1); };
  const auto before = window > 0 ? std::optional(window - 1) : std::nullopt;
  return std::get<0>(at::_flash_attention_forward(
                         q, line(keys), line(values), packed.row_begins, packed.slot_begins,
                         packed.most_rows, packed.longest, /*dropout_p=*/0.0, /*is_causal=*/true,
                         /*return_debug_mask=*/false, /*scale=*/std::nullopt, before,
                         window > 0 ? std::optional<std::int64_t>(0) : std::nullopt,
                         packed.lengths))
      .reshape({q.size(0), -1});
}

}  // namespace evalcar::models
