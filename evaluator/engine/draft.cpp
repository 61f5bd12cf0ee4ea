#include "evaluator/engine/draft.h"

#include <algorithm>
#include <utility>

namespace evalcar::engine {

std::span<const std::int32_t> Draft::next(std::int64_t most) const {
  if (parted_ || most <= 0) return {};
  return earlier_.subspan(at_, std::min(static_cast<std::size_t>(most), earlier_.size() - at_));
}

void Draft::take(std::int32_t token) {
  const std::int32_t before = std::exchange(before_, token);
  if (!parted_ && at_ < earlier_.size() && earlier_[at_] == token) {
    ++at_;
    return;
  }
  parted_ = true;
  for (std::size_t i = at_; i + 1 < earlier_.size(); ++i) {
    if (earlier_[i] != before || earlier_[i + 1] != token) continue;
    at_ = i + 2;
    parted_ = false;
    return;
  }
}

std::int64_t guesses_of_each(std::int64_t sequences, std::int64_t drafting,
                             std::int64_t most_rows) {
  if (drafting == 0 || sequences > kMostDecoded) return 0;
  return std::clamp<std::int64_t>((most_rows - sequences) / drafting, 0, kMostGuesses);
}

}  // namespace evalcar::engine
