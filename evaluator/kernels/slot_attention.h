// Attention of one new row for each slot of the cache, as decoding asks for it, in float32 on the
// CPU. Of no row do the bits depend on the other slots: each goes over its own keys, in their
// order. No libtorch.
#pragma once

#include <cstdint>
#include <span>

#include "evaluator/kernels/seen_keys.h"

namespace evalcar::kernels {

/// Strides count floats; a vector of `dim` numbers is contiguous. Head h of q reads key head
/// h · kv_heads / heads.
struct SlotAttention {
  const float* q = nullptr;  ///< (slots, heads, dim), contiguous
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t dim = 0;
  const float* k = nullptr;  ///< of slot 0, position 0; key heads side by side
  const float* v = nullptr;  ///< with the strides of k
  std::int64_t slot_stride = 0;
  std::int64_t position_stride = 0;
  std::span<const SeenKeys> seen;  ///< of each slot: [begin, end), at least one key
  float* out = nullptr;            ///< as q
};

/// Key heads of all slots.
std::int64_t tasks_of(const SlotAttention& a);

/// softmax(q kᵀ / sqrt(dim)) v for tasks [first, first + count). The exponentials are right to 2
/// units of float32's last place. Any thread.
void attend_slots(const SlotAttention& a, std::int64_t first, std::int64_t count);

}  // namespace evalcar::kernels
