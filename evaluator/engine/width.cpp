#include "evaluator/engine/width.h"

#include <algorithm>

namespace evalcar::engine {
namespace {

constexpr std::int64_t kLeastPrefillTokens = 128;
constexpr std::int64_t kLeastPatches = 1024;

}  // namespace

Width FittingWidth::of(const Width& full) const {
  if (!most_.has_value()) return full;
  return {.sequences = std::min(full.sequences, most_->sequences),
          .prefill_tokens = std::min(full.prefill_tokens, most_->prefill_tokens),
          .patches = std::min(full.patches, most_->patches)};
}

std::int64_t FittingWidth::shrink(const Width& full, std::int64_t sequences) {
  const Width now = of(full);
  const Width next{.sequences = std::max<std::int64_t>(1, sequences / 2),
                   .prefill_tokens = std::min(
                       now.prefill_tokens, std::max(kLeastPrefillTokens, now.prefill_tokens / 2)),
                   .patches = std::min(now.patches, std::max(kLeastPatches, now.patches / 2))};
  const bool least =
      sequences <= 1 && next.prefill_tokens == now.prefill_tokens && next.patches == now.patches;
  if (least) return 0;
  most_ = next;
  return next.sequences;
}

void FittingWidth::widen(const Width& full) {
  if (!most_.has_value()) return;
  most_ = Width{2 * most_->sequences, 2 * most_->prefill_tokens, 2 * most_->patches};
  if (most_->sequences >= full.sequences && most_->prefill_tokens >= full.prefill_tokens &&
      most_->patches >= full.patches)
    most_.reset();
}

}  // namespace evalcar::engine
