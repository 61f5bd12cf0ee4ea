// Scaled dot-product attention in the two forms that a vision-language model needs: blocks without
// a cache (vision towers), and causal attention over a slot cache (text).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "evaluator/kernels/decode_attention.h"
#include "evaluator/kernels/place_heads.h"
#include "evaluator/kernels/seen_keys.h"
#include "evaluator/models/kv_cache.h"
#include "evaluator/models/packed_prefill.h"

namespace evalcar::models {

enum class AttentionKind {
  kSdpa,   ///< fused kernels: ours where there is one, else libtorch's
  kEager,  ///< matrix products and a float32 softmax, written out: the reference
};
/// "sdpa", "eager": as transformers names them.
std::string_view attention_name(AttentionKind kind);

/// What decoding on a GPU needs to know of one new row of each of the slots 0, 1, …, all of it on
/// the device.
struct DecodeRows {
  at::Tensor slots;               ///< (rows) int64: 0, 1, …
  at::Tensor places;              ///< (rows) int64: the row's own position in its slot
  kernels::DecodeSight sight;     ///< up to itself
  kernels::DecodeSight windowed;  ///< in windowed layers
};

/// Causal attention of a packed batch over the cache. Made once per batch, used in every layer. The
/// cache must outlive it.
class CachedAttention {
 public:
  /// `window`: how many positions a row of a windowed layer sees, its own included; 0 where no
  /// layer has a window.
  CachedAttention(std::span<const Segment> segments, KvCache& cache, AttentionKind kind,
                  std::int64_t window = 0);
  /// Of rows that the device is told of, so that a CUDA graph may have it, where
  /// takes_rows_on_device().
  CachedAttention(DecodeRows rows, KvCache& cache);
  static bool takes_rows_on_device(const KvCache& cache, AttentionKind kind);

  /// Writes the new keys and values to the cache, then attends each row to its sequence up to
  /// itself; in a windowed layer to the last `window` positions of that. q: (rows, heads, dim);
  /// k, v: (rows, kv_heads, dim). Returns (rows, heads · dim).
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v, bool windowed = false) const;

  /// Whether attend() takes such rows before they are normed and turned.
  bool takes(const kernels::PackedHeads& heads) const;
  /// The same, which norms and turns them on the way to the cache: in one pass, where takes().
  at::Tensor attend(std::int64_t layer, const kernels::PackedHeads& heads,
                    bool windowed = false) const;

 private:
  /// What the rows see. Decode: the keys of each row, or one mask (rows, 1, 1, longest). Else for
  /// each segment, where our kernel runs, the keys of each row, and where it does not, a mask
  /// (length, start + length); an undefined mask hides nothing but what lies ahead, or, where all
  /// are read in one call, nothing that this is not told of.
  struct Sight {
    std::vector<at::Tensor> masks;
    std::vector<std::vector<kernels::SeenKeys>> keys;
    kernels::DecodeSight on_device;  // where the GPU's kernel decodes
  };
  bool is_decode() const;
  Sight sight(std::int64_t window) const;
  at::Tensor decode_mask(std::int64_t window) const;
  void locate_rows();
  kernels::CachePlace place(std::int64_t layer) const;
  void write(std::int64_t layer, const at::Tensor& k, const at::Tensor& v) const;
  at::Tensor attend_written(std::int64_t layer, const at::Tensor& q, bool windowed) const;
  at::Tensor decode(std::int64_t layer, const at::Tensor& q, const at::Tensor& mask) const;
  at::Tensor prefill(std::int64_t layer, const at::Tensor& q, const Sight& sight) const;
  void prefill_one(std::int64_t layer, const at::Tensor& q, std::size_t segment,
                   const at::Tensor& mask, at::Tensor& out) const;
  at::Tensor prefill_packed(std::int64_t layer, const at::Tensor& q, const Sight& sight,
                            std::int64_t window) const;
  at::Tensor prefill_by_kernel(std::int64_t layer, const at::Tensor& q, const Sight& sight) const;

  std::vector<Segment> segments_;
  KvCache& cache_;
  AttentionKind kind_;
  std::int64_t window_ = 0;
  bool decode_ = false;
  bool kernel_ = false;        // ours, of several rows of a sequence
  bool by_slots_ = false;      // ours, of one row of each slot, on the CPU
  bool on_gpu_ = false;        // the same on a GPU
  std::int64_t longest_ = 0;   // positions that the longest sequence has after this batch
  at::Tensor slots_, places_;  // of each row: (rows) int64; to decode, and for kernels on a GPU
  std::optional<PackedPrefill> packed_;  // all prompts of a batch at once, on a GPU in bfloat16
  Sight sight_, windowed_sight_;
};

/// Attention inside equal blocks of rows, everything with everything. q, k, v: (count · length,
/// heads, dim), contiguous in that order of rows. `out`, (count · length, heads · dim), contiguous,
/// is written.
void block_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     std::int64_t count, std::int64_t length, AttentionKind kind,
                     const at::Tensor& out);

}  // namespace evalcar::models
