#include "evaluator/kernels/place_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_put.h>

#include <algorithm>

#include "evaluator/kernels/parallel.h"
#include "evaluator/kernels/rms_norm.h"
#include "evaluator/kernels/row_passes.h"

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/place_heads_cuda.h"
#endif

namespace evalcar::kernels {
namespace {

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!weight.defined()) return x;
  return rms_norm_reference(x.reshape({-1, x.size(2)}), weight, eps).view(x.sizes());
}

at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = x.size(2) / 2;
  const at::Tensor first = x.narrow(2, 0, half), second = x.narrow(2, half, half);
  return at::cat({first * cos - second * sin, second * cos + first * sin}, 2);
}

// On the device, of the dtype, contiguous; or not there at all.
bool is_plain(const at::Tensor& x, const at::Tensor& like) {
  return !x.defined() || (x.device() == like.device() && x.scalar_type() == like.scalar_type() &&
                          x.is_contiguous());
}

// In float32 on the CPU. Of a cache the slots may lie apart.
bool is_one_pass(const PackedHeads& heads, const CachePlace& place) {
  const at::Tensor& qkv = heads.qkv;
  if (!qkv.is_cpu() || qkv.scalar_type() != at::kFloat || qkv.dim() != 3) return false;
  for (const at::Tensor& x : {qkv, heads.q_norm, heads.k_norm, heads.cos, heads.sin,
                              place.keys.select(0, 0), place.values.select(0, 0)}) {
    if (!is_plain(x, qkv)) return false;
  }
  return qkv.size(2) % 2 == 0 && place.keys.strides() == place.values.strides() &&
         place.slots.is_contiguous() && place.places.is_contiguous();
}

void check(const PackedHeads& heads, const CachePlace& place) {
  const std::int64_t rows = heads.qkv.size(0), dim = heads.qkv.size(2);
  TORCH_CHECK(has_place_kernel(heads, place) &&
                  heads.qkv.size(1) == heads.heads + 2 * place.keys.size(2) &&
                  place.keys.size(3) == dim && heads.cos.numel() == rows * dim / 2 &&
                  heads.sin.numel() == rows * dim / 2 && place.slots.numel() == rows &&
                  place.places.numel() == rows &&
                  (!heads.q_norm.defined() || heads.q_norm.numel() == dim) &&
                  (!heads.k_norm.defined() || heads.k_norm.numel() == dim),
              "place_heads: rows and cache do not belong together");
}

bool all_below(const at::Tensor& numbers, std::int64_t end) {
  const std::int64_t* const first = numbers.const_data_ptr<std::int64_t>();
  return std::all_of(first, first + numbers.numel(),
                     [end](std::int64_t each) { return each >= 0 && each < end; });
}

const float* floats_of(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}

at::Tensor place_in_one_pass(const PackedHeads& heads, const CachePlace& place) {
  const at::Tensor& qkv = heads.qkv;
  TORCH_CHECK(
      all_below(place.slots, place.keys.size(0)) && all_below(place.places, place.keys.size(1)),
      "place_heads: a row's place is not in the cache");
  const at::Tensor q = at::empty({qkv.size(0), heads.heads, qkv.size(2)}, qkv.options());
  const PlaceRows rows{.qkv = floats_of(qkv),
                       .q_norm = floats_of(heads.q_norm),
                       .k_norm = floats_of(heads.k_norm),
                       .eps = static_cast<float>(heads.eps),
                       .cos = floats_of(heads.cos),
                       .sin = floats_of(heads.sin),
                       .slots = place.slots.const_data_ptr<std::int64_t>(),
                       .places = place.places.const_data_ptr<std::int64_t>(),
                       .heads = heads.heads,
                       .kv_heads = place.keys.size(2),
                       .half = qkv.size(2) / 2,
                       .q = q.mutable_data_ptr<float>(),
                       .keys = place.keys.mutable_data_ptr<float>(),
                       .values = place.values.mutable_data_ptr<float>(),
                       .slot_stride = place.keys.stride(0),
                       .position_stride = place.keys.stride(1),
                       .head_stride = place.keys.stride(2)};
  in_parallel(qkv.size(0), kPassGrain / (qkv.size(1) * qkv.size(2)),
              [&](std::int64_t first, std::int64_t count) { place_rows(rows, first, count); });
  return q;
}

#ifdef EVALCAR_CUDA

// The same at a 16-byte boundary.
bool is_readable(const at::Tensor& x, const at::Tensor& like) {
  return is_plain(x, like) && (!x.defined() || is_at_boundary(x.const_data_ptr()));
}

// Of a cache the slots may lie apart.
bool is_cache(const at::Tensor& x, const at::Tensor& like) {
  return x.dim() == 4 && is_readable(x.select(0, 0), like) &&
         x.stride(0) * x.element_size() % 16 == 0;
}

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

#endif

}  // namespace

#ifdef EVALCAR_CUDA

bool has_place_kernel(const PackedHeads& heads, const CachePlace& place) {
  const at::Tensor& qkv = heads.qkv;
  if (is_one_pass(heads, place)) return true;
  const bool type = qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16;
  if (!qkv.is_cuda() || !type || qkv.dim() != 3 || qkv.size(2) % 2 != 0) return false;
  for (const at::Tensor& x : {qkv, heads.q_norm, heads.k_norm, heads.cos, heads.sin}) {
    if (!is_readable(x, qkv)) return false;
  }
  return is_cache(place.keys, qkv) && is_cache(place.values, qkv) &&
         place.keys.strides() == place.values.strides() && place.slots.is_contiguous() &&
         place.places.is_contiguous() && qkv.size(2) / 2 * qkv.element_size() % 16 == 0 &&
         qkv.size(2) / 2 * qkv.element_size() <= kMostHalfOfHead &&
         at::cuda::getDeviceProperties(qkv.get_device())->major >= 8;
}

at::Tensor place_heads(const PackedHeads& heads, const CachePlace& place) {
  const at::Tensor& qkv = heads.qkv;
  check(heads, place);
  if (qkv.is_cpu()) return place_in_one_pass(heads, place);
  const std::int64_t rows = qkv.size(0), dim = qkv.size(2), kv_heads = place.keys.size(2);
  const c10::cuda::CUDAGuard guard(qkv.device());  // a launch goes to the current device
  const at::Tensor q = at::empty({rows, heads.heads, dim}, qkv.options());
  const PlaceLaunch launch{
      .type = qkv.scalar_type() == at::kFloat ? StoredType::kFloat32 : StoredType::kBFloat16,
      .qkv = qkv.const_data_ptr(),
      .q_norm = data_or_null(heads.q_norm),
      .k_norm = data_or_null(heads.k_norm),
      .eps = static_cast<float>(heads.eps),
      .cos = heads.cos.const_data_ptr(),
      .sin = heads.sin.const_data_ptr(),
      .slots = place.slots.const_data_ptr<std::int64_t>(),
      .places = place.places.const_data_ptr<std::int64_t>(),
      .rows = rows,
      .heads = heads.heads,
      .kv_heads = kv_heads,
      .half = dim / 2,
      .q = q.mutable_data_ptr(),
      .keys = place.keys.mutable_data_ptr(),
      .values = place.values.mutable_data_ptr(),
      .slot_stride = place.keys.stride(0),
      .position_stride = place.keys.stride(1),
      .head_stride = place.keys.stride(2)};
  C10_CUDA_CHECK(launch_place_heads(launch, at::cuda::getCurrentCUDAStream(qkv.get_device())));
  return q;
}

#else

bool has_place_kernel(const PackedHeads& heads, const CachePlace& place) {
  return is_one_pass(heads, place);
}

at::Tensor place_heads(const PackedHeads& heads, const CachePlace& place) {
  check(heads, place);
  return place_in_one_pass(heads, place);
}

#endif

at::Tensor place_heads_reference(const PackedHeads& heads, const CachePlace& place) {
  const std::int64_t kv_heads = place.keys.size(2);
  const at::Tensor q = heads.qkv.narrow(1, 0, heads.heads);
  const at::Tensor k = heads.qkv.narrow(1, heads.heads, kv_heads);
  const at::Tensor v = heads.qkv.narrow(1, heads.heads + kv_heads, kv_heads);
  at::Tensor keys = place.keys, values = place.values;
  keys.index_put_({place.slots, place.places},
                  turned(normed(k, heads.k_norm, heads.eps), heads.cos, heads.sin));
  values.index_put_({place.slots, place.places}, v);
  return turned(normed(q, heads.q_norm, heads.eps), heads.cos, heads.sin);
}

}  // namespace evalcar::kernels
