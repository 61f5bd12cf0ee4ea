#include "evaluator/models/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "evaluator/kernels/attention.h"

namespace evalcar::models {
namespace {

// softmax(q kᵀ / sqrt(dim) + mask) v.  q: (…, m, dim), k and v: (…, n, dim), mask: broadcastable to
// (…, m, n) or undefined. Written as transformers' eager path: the softmax in float32, its result
// in q's dtype.
at::Tensor eager(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& mask) {
  at::Tensor scores =
      at::matmul(q, k.transpose(-2, -1)).mul_(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  if (mask.defined()) scores = scores + mask;
  const at::Tensor weights = at::softmax(scores, -1, at::kFloat).to(q.scalar_type());
  return at::matmul(weights, v);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask, bool causal, AttentionKind kind) {
  if (kind == AttentionKind::kEager) return eager(q, k, v, mask);
  return at::scaled_dot_product_attention(
      q, k, v, mask.defined() ? std::optional(mask) : std::nullopt, 0.0, causal);
}

at::Tensor int64_tensor(const std::vector<std::int64_t>& values, at::Device device) {
  return at::tensor(at::ArrayRef<std::int64_t>(values), at::TensorOptions().dtype(at::kLong))
      .to(device);
}

// (length, start + length): row i sees the positions up to start + i, the last `window` of them
// where that is not 0.
at::Tensor causal_mask(const Segment& segment, std::int64_t window, at::TensorOptions options) {
  const at::Tensor hidden = at::full({segment.length, segment.start + segment.length},
                                     -std::numeric_limits<double>::infinity(), options);
  const at::Tensor ahead = hidden.triu(segment.start + 1);
  return window == 0 ? ahead : ahead + hidden.tril(segment.start - window);
}

// The same where the sequence branches. A window counts places of the sequence: those of a branch
// follow the shared ones, wherever in the slot it lies.
at::Tensor branch_mask(const Segment& segment, std::int64_t window, at::TensorOptions options) {
  const at::TensorOptions places = options.dtype(at::kLong);
  const std::int64_t total = segment.start + segment.length;
  const at::Tensor own = int64_tensor(segment.own, options.device()).unsqueeze(1);
  const at::Tensor row = at::arange(segment.start, total, places).unsqueeze(1);
  const at::Tensor key = at::arange(total, places).unsqueeze(0);
  const at::Tensor is_shared = key < segment.shared;
  at::Tensor hidden = (key > row).logical_or((key < own).logical_and(is_shared.logical_not()));
  if (window > 0) {
    const at::Tensor behind_row = at::where(is_shared, row - own + segment.shared - key, row - key);
    hidden = hidden.logical_or(behind_row >= window);
  }
  return at::zeros(hidden.sizes(), options)
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

// The same as positions of the slot. Of a branch the shared positions stand before it.
std::vector<kernels::SeenKeys> seen_keys(const Segment& segment, std::int64_t window) {
  std::vector<kernels::SeenKeys> seen;
  for (std::int64_t i = 0; i < segment.length; ++i) {
    const std::int64_t row = segment.start + i;
    const bool branches = !segment.own.empty();
    const std::int64_t own = branches ? segment.own[static_cast<std::size_t>(i)] : 0;
    kernels::SeenKeys keys{.begin = own, .end = row + 1};
    if (branches) keys.shared_end = segment.shared;
    if (window > 0) {
      keys.begin = std::max(own, row + 1 - window);
      keys.shared_begin =
          std::clamp<std::int64_t>(row - own + segment.shared + 1 - window, 0, keys.shared_end);
    }
    seen.push_back(keys);
  }
  return seen;
}

at::Tensor mask_of(const Segment& segment, std::int64_t window, AttentionKind kind,
                   at::TensorOptions options) {
  if (!segment.own.empty()) return branch_mask(segment, window, options);
  // A prompt from its first token on needs no mask: the fused kernel knows "causal".
  if (kind == AttentionKind::kSdpa && segment.start == 0 && window == 0) return {};
  return causal_mask(segment, window, options);
}

}  // namespace

std::string_view attention_name(AttentionKind kind) {
  return kind == AttentionKind::kSdpa ? "sdpa" : "eager";
}

CachedAttention::CachedAttention(std::span<const Segment> segments, KvCache& cache,
                                 AttentionKind kind, std::int64_t window)
    : segments_(segments.begin(), segments.end()), cache_(cache), kind_(kind), window_(window) {
  decode_ = is_decode();
  for (const Segment& segment : segments_)
    longest_ = std::max(longest_, segment.start + segment.length);
  if (decode_ || (cache.keys.is_cuda() && kind == AttentionKind::kSdpa)) locate_rows();
  kernel_ = !decode_ && kind == AttentionKind::kSdpa && kernels::has_attention_kernel(cache.keys);
  by_slots_ =
      kind == AttentionKind::kSdpa && cache.keys.is_cpu() && cache.keys.scalar_type() == at::kFloat;
  on_gpu_ = decode_ && takes_rows_on_device(cache, kind);
  if (!decode_ && kind_ == AttentionKind::kSdpa && slots_.defined())
    packed_ = pack_prefill(segments_, cache_);
  sight_ = sight(0);
  windowed_sight_ = window > 0 && window < longest_ ? sight(window) : sight_;
}

CachedAttention::CachedAttention(DecodeRows rows, KvCache& cache)
    : cache_(cache),
      kind_(AttentionKind::kSdpa),
      decode_(true),
      on_gpu_(true),
      slots_(std::move(rows.slots)),
      places_(std::move(rows.places)) {
  sight_.on_device = std::move(rows.sight);
  windowed_sight_.on_device = std::move(rows.windowed);
}

bool CachedAttention::takes_rows_on_device(const KvCache& cache, AttentionKind kind) {
  return kind == AttentionKind::kSdpa && kernels::has_decode_kernel(cache.keys.select(0, 0));
}

// Nothing where the segments' rows do not follow one another.
void CachedAttention::locate_rows() {
  std::vector<std::int64_t> slots, places;
  for (const Segment& segment : segments_) {
    if (segment.row != static_cast<std::int64_t>(slots.size())) return;
    for (std::int64_t i = 0; i < segment.length; ++i) {
      slots.push_back(segment.slot);
      places.push_back(segment.start + i);
    }
  }
  slots_ = int64_tensor(slots, cache_.keys.device());
  places_ = int64_tensor(places, cache_.keys.device());
}

CachedAttention::Sight CachedAttention::sight(std::int64_t window) const {
  Sight made;
  if (decode_ && (by_slots_ || on_gpu_)) {
    made.keys.emplace_back();
    for (const Segment& segment : segments_) {
      const std::int64_t end = segment.start + 1;
      made.keys.front().push_back(
          {.begin = window == 0 ? 0 : std::max<std::int64_t>(0, end - window), .end = end});
    }
    if (on_gpu_) made.on_device = kernels::decode_sight(made.keys.front(), cache_.keys.device());
    return made;
  }
  if (decode_) return {.masks = {decode_mask(window)}, .keys = {}, .on_device = {}};
  for (const Segment& segment : segments_) {
    const bool within = window == 0 || segment.start + segment.length <= window;
    const std::int64_t most = within ? 0 : window;
    if (kernel_) {
      made.keys.push_back(seen_keys(segment, most));
    } else if (packed_ && segment.own.empty()) {
      made.masks.emplace_back();
    } else {
      made.masks.push_back(mask_of(segment, most, kind_, cache_.keys.options()));
    }
  }
  return made;
}

at::Tensor CachedAttention::decode_mask(std::int64_t window) const {
  const bool even = std::ranges::all_of(
      segments_, [&](const Segment& segment) { return segment.start + 1 == longest_; });
  if (even && window == 0) return {};
  const at::Tensor positions = at::arange(longest_, slots_.options()).unsqueeze(0);
  at::Tensor hidden = positions > places_.unsqueeze(1);  // (rows, longest)
  if (window > 0) hidden = hidden.logical_or(positions <= places_.unsqueeze(1) - window);
  return at::zeros(hidden.sizes(), cache_.keys.options())
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity())
      .unsqueeze(1)
      .unsqueeze(1);
}

// One new token for each of the slots 0, 1, …: all of them attend in one call.
bool CachedAttention::is_decode() const {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const auto index = static_cast<std::int64_t>(i);
    if (segment.length != 1 || segment.slot != index || segment.row != index) return false;
    if (!segment.own.empty()) return false;
  }
  return true;
}

at::Tensor CachedAttention::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, bool windowed) const {
  write(layer, k, v);
  return attend_written(layer, q, windowed);
}

kernels::CachePlace CachedAttention::place(std::int64_t layer) const {
  return {slots_, places_, cache_.keys.select(0, layer), cache_.values.select(0, layer)};
}

bool CachedAttention::takes(const kernels::PackedHeads& heads) const {
  return slots_.defined() && kind_ == AttentionKind::kSdpa &&
         kernels::has_place_kernel(heads, place(0));
}

at::Tensor CachedAttention::attend(std::int64_t layer, const kernels::PackedHeads& heads,
                                   bool windowed) const {
  return attend_written(layer, kernels::place_heads(heads, place(layer)), windowed);
}

at::Tensor CachedAttention::attend_written(std::int64_t layer, const at::Tensor& q,
                                           bool windowed) const {
  const Sight& sight = windowed ? windowed_sight_ : sight_;
  if (decode_ && by_slots_) {
    return kernels::attend_slots(q, cache_.keys.select(0, layer), cache_.values.select(0, layer),
                                 sight.keys.front())
        .view({q.size(0), -1});
  }
  if (on_gpu_) {
    return kernels::decode_attention(q, cache_.keys.select(0, layer),
                                     cache_.values.select(0, layer), sight.on_device)
        .view({q.size(0), -1});
  }
  if (decode_) return decode(layer, q, sight.masks.front());
  if (packed_) return prefill_packed(layer, q, sight, windowed ? window_ : 0);
  return kernel_ ? prefill_by_kernel(layer, q, sight) : prefill(layer, q, sight);
}

void CachedAttention::write(std::int64_t layer, const at::Tensor& k, const at::Tensor& v) const {
  const at::Tensor keys = cache_.keys.select(0, layer);  // (slots, capacity, kv_heads, dim)
  const at::Tensor values = cache_.values.select(0, layer);
  if (decode_) {
    keys.index_put_({slots_, places_}, k);
    values.index_put_({slots_, places_}, v);
    return;
  }
  for (const Segment& segment : segments_) {
    const auto place = [&segment](const at::Tensor& cache) {
      return cache.select(0, segment.slot).narrow(0, segment.start, segment.length);
    };
    place(keys).copy_(k.narrow(0, segment.row, segment.length));
    place(values).copy_(v.narrow(0, segment.row, segment.length));
  }
}

// The query heads that share a key head become rows of one matrix: no key is repeated.
at::Tensor CachedAttention::decode(std::int64_t layer, const at::Tensor& q,
                                   const at::Tensor& hidden) const {
  const std::int64_t rows = q.size(0), heads = q.size(1), dim = q.size(2);
  const std::int64_t kv_heads = cache_.keys.size(3);
  const auto filled = [&](const at::Tensor& cache) {  // (rows, kv_heads, longest, dim)
    return cache.select(0, layer).narrow(0, 0, rows).narrow(1, 0, longest_).transpose(1, 2);
  };
  const at::Tensor grouped = q.view({rows, kv_heads, heads / kv_heads, dim});
  at::Tensor mask = hidden;
  if (mask.defined() && kind_ == AttentionKind::kSdpa)
    mask = mask.expand({rows, 1, heads / kv_heads, longest_});
  return attention(grouped, filled(cache_.keys), filled(cache_.values), mask, false, kind_)
      .reshape({rows, heads * dim});
}

// Per sequence.
at::Tensor CachedAttention::prefill(std::int64_t layer, const at::Tensor& q,
                                    const Sight& sight) const {
  at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  for (std::size_t i = 0; i < segments_.size(); ++i) prefill_one(layer, q, i, sight.masks[i], out);
  return out;
}

// The query heads that share a key head stand in as many batches, which share all keys by a stride
// of 0. Not as heads of one batch: where the stride of the heads is 0 and one query is left for a
// block, CUDA's memory-efficient kernel of torch 2.11 reads the mask's first row for it
// (mem_eff_attention/kernel_forward.h, "iterates over heads"; pytorch issue 191937).
void CachedAttention::prefill_one(std::int64_t layer, const at::Tensor& q, std::size_t number,
                                  const at::Tensor& mask, at::Tensor& out) const {
  const Segment& segment = segments_[number];
  const std::int64_t dim = q.size(2), kv_heads = cache_.keys.size(3), group = q.size(1) / kv_heads;
  const std::int64_t total = segment.start + segment.length;
  const auto shared = [&](const at::Tensor& cache) {  // (group, kv_heads, total, dim)
    return cache.select(0, layer)
        .select(0, segment.slot)
        .narrow(0, 0, total)
        .transpose(0, 1)
        .unsqueeze(0)
        .expand({group, kv_heads, total, dim});
  };
  const at::Tensor rows = q.narrow(0, segment.row, segment.length)
                              .view({segment.length, kv_heads, group, dim})
                              .permute({2, 1, 0, 3});  // (group, kv_heads, length, dim)
  const at::Tensor result =
      attention(rows, shared(cache_.keys), shared(cache_.values), mask, !mask.defined(), kind_);
  out.narrow(0, segment.row, segment.length)
      .view({segment.length, kv_heads, group, dim})
      .copy_(result.permute({2, 1, 0, 3}));
}

// What branches is computed once more by itself.
at::Tensor CachedAttention::prefill_packed(std::int64_t layer, const at::Tensor& q,
                                           const Sight& sight, std::int64_t window) const {
  at::Tensor out = attend_packed(*packed_, q, cache_.keys.select(0, layer),
                                 cache_.values.select(0, layer), window);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (!segments_[i].own.empty()) prefill_one(layer, q, i, sight.masks[i], out);
  }
  return out;
}

at::Tensor CachedAttention::prefill_by_kernel(std::int64_t layer, const at::Tensor& q,
                                              const Sight& sight) const {
  const at::Tensor out = at::empty(q.sizes(), q.options());
  std::vector<kernels::AttentionRows> sequences;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const auto filled = [&](const at::Tensor& cache) {  // (positions, kv_heads, dim)
      return cache.select(0, layer)
          .select(0, segment.slot)
          .narrow(0, 0, segment.start + segment.length);
    };
    sequences.push_back({.q = q.narrow(0, segment.row, segment.length),
                         .k = filled(cache_.keys),
                         .v = filled(cache_.values),
                         .out = out.narrow(0, segment.row, segment.length),
                         .seen = sight.keys[i]});
  }
  kernels::attend(sequences);
  return out.view({q.size(0), -1});
}

void block_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     std::int64_t count, std::int64_t length, AttentionKind kind,
                     const at::Tensor& out) {
  if (kind == AttentionKind::kSdpa && kernels::has_attention_kernel(q)) {
    const at::Tensor to = out.view(q.sizes());
    std::vector<kernels::AttentionRows> sequences;
    for (std::int64_t first = 0; first < count * length; first += length) {
      const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, length); };
      sequences.push_back({.q = part(q), .k = part(k), .v = part(v), .out = part(to)});
    }
    kernels::attend(sequences);
    return;
  }
  const auto blocks = [&](const at::Tensor& rows) {  // (count, heads, length, dim)
    return rows.unflatten(0, {count, length}).transpose(1, 2);
  };
  blocks(out.view(q.sizes()))
      .copy_(attention(blocks(q), blocks(k), blocks(v), at::Tensor(), false, kind));
}

}  // namespace evalcar::models
