#include "evaluator/kernels/decode_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "evaluator/kernels/decode_attention_block.h"

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/decode_attention_cuda.h"
#endif

namespace evalcar::kernels {

DecodeSight decode_sight(std::span<const SeenKeys> seen, at::Device device) {
  static_assert(sizeof(KeyRange) == 2 * sizeof(std::int64_t));
  std::vector<std::int64_t> ranges;
  DecodeSight sight;
  for (const SeenKeys& each : seen) {
    ranges.push_back(each.begin);
    ranges.push_back(each.end);
    sight.most_keys = std::max(sight.most_keys, each.end - each.begin);
  }
  const auto rows = static_cast<std::int64_t>(seen.size());
  sight.ranges =
      at::tensor(at::ArrayRef<std::int64_t>(ranges), at::kLong).view({rows, 2}).to(device);
  return sight;
}

#ifdef EVALCAR_CUDA

bool has_decode_kernel(const at::Tensor& keys) {
  constexpr std::int64_t kDims[] = {64, 80, 96, 128};
  constexpr std::int64_t kMostOfGrid = 65535;
  const bool type = keys.scalar_type() == at::kFloat || keys.scalar_type() == at::kBFloat16;
  if (!keys.is_cuda() || !type || keys.dim() != 4) return false;
  const std::int64_t kv_heads = keys.size(2), dim = keys.size(3);
  return std::ranges::find(kDims, dim) != std::end(kDims) && keys.size(0) <= kMostOfGrid &&
         keys.stride(3) == 1 && keys.stride(2) == dim && keys.stride(1) == kv_heads * dim &&
         keys.stride(0) * keys.element_size() % 16 == 0 && is_at_boundary(keys.const_data_ptr()) &&
         at::cuda::getDeviceProperties(keys.get_device())->major >= 8;
}

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const DecodeSight& sight) {
  TORCH_CHECK(has_decode_kernel(keys) && has_decode_kernel(values) &&
                  keys.strides() == values.strides() && q.scalar_type() == keys.scalar_type() &&
                  values.scalar_type() == keys.scalar_type() && q.device() == keys.device() &&
                  q.size(0) <= keys.size(0) && q.size(2) == keys.size(3) &&
                  sight.ranges.size(0) == q.size(0) && sight.most_keys <= keys.size(1),
              "decode_attention: rows and cache do not belong together");
  const c10::cuda::CUDAGuard guard(q.device());  // a launch goes to the current device
  const at::Tensor rows = q.contiguous();
  const at::Tensor out = at::empty_like(rows);
  if (out.numel() == 0) return out;
  const std::int64_t dim = q.size(2), splits = splits_of(sight.most_keys);
  const std::int64_t parts = splits > 1 ? q.size(0) * q.size(1) * splits : 0;
  const at::Tensor scratch = at::empty({parts * (dim + 2)}, q.options().dtype(at::kFloat));
  float* const mixed = parts > 0 ? scratch.mutable_data_ptr<float>() : nullptr;
  const DecodeLaunch launch{
      .type = q.scalar_type() == at::kFloat ? StoredType::kFloat32 : StoredType::kBFloat16,
      .q = rows.const_data_ptr(),
      .k = keys.const_data_ptr(),
      .v = values.const_data_ptr(),
      .slot_stride = keys.stride(0),
      .position_stride = keys.stride(1),
      .head_stride = keys.stride(2),
      .seen = reinterpret_cast<const KeyRange*>(sight.ranges.const_data_ptr<std::int64_t>()),
      .rows = q.size(0),
      .heads = q.size(1),
      .kv_heads = keys.size(2),
      .dim = dim,
      .scale = decode_scale(dim),
      .splits = splits,
      .out = out.mutable_data_ptr(),
      .mixed = mixed,
      .largest = mixed == nullptr ? nullptr : mixed + parts * dim,
      .sums = mixed == nullptr ? nullptr : mixed + parts * (dim + 1)};
  C10_CUDA_CHECK(launch_decode_attention(launch, at::cuda::getCurrentCUDAStream(q.get_device())));
  return out;
}

#else

bool has_decode_kernel(const at::Tensor&) { return false; }

at::Tensor decode_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const DecodeSight&) {
  TORCH_CHECK(false, "decode_attention: built without CUDA");
}

#endif

at::Tensor decode_attention_reference(const at::Tensor& q, const at::Tensor& keys,
                                      const at::Tensor& values, std::span<const SeenKeys> seen) {
  const std::int64_t heads = q.size(1), dim = q.size(2), kv_heads = keys.size(2);
  const at::Tensor out = at::empty_like(q);
  for (std::int64_t row = 0; row < q.size(0); ++row) {
    const SeenKeys& each = seen[static_cast<std::size_t>(row)];
    const auto seen_of = [&](const at::Tensor& cache) {  // (kv_heads, keys, dim)
      return cache.select(0, row)
          .narrow(0, each.begin, each.end - each.begin)
          .transpose(0, 1)
          .to(at::kFloat);
    };
    const at::Tensor grouped = q.select(0, row).view({kv_heads, -1, dim}).to(at::kFloat);
    const at::Tensor scores =
        at::matmul(grouped, seen_of(keys).transpose(1, 2)) / std::sqrt(static_cast<double>(dim));
    out.select(0, row).copy_(
        at::matmul(at::softmax(scores, -1), seen_of(values)).view({heads, dim}));
  }
  return out;
}

}  // namespace evalcar::kernels
