// An answer that an earlier checkpoint gave to the same question, as a guess at this one's. Without
// libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace evalcar::engine {

/// Of a longer earlier answer the rest is not looked at.
inline constexpr std::size_t kMostDraftTokens = 4096;
/// Of one sequence in one pass: an answer that departs from its draft makes the rest of them
/// worthless.
inline constexpr std::int64_t kMostGuesses = 8;
/// Sequences that decode together beside guesses. Up to so many rows every matrix is read by the
/// same kernel (kernels/linear.h), which gives a row the same bits whatever stands beside it: so it
/// does not matter for a row that the others are further on than they would be without drafts.
inline constexpr std::int64_t kMostDecoded = 8;

/// Follows an answer, token by token, along the earlier one. A wrong guess costs time and nothing
/// else: whoever asks for guesses checks each.
class Draft {
 public:
  Draft() = default;
  /// `earlier` must outlive this.
  explicit Draft(std::span<const std::int32_t> earlier)
      : earlier_(
            earlier.first(earlier.size() < kMostDraftTokens ? earlier.size() : kMostDraftTokens)) {}

  /// The tokens that are expected next, at most `most`; none while the answer and the draft have
  /// parted.
  std::span<const std::int32_t> next(std::int64_t most) const;
  /// The answer's next token. One that is not expected parts the two; they meet again where the
  /// answer's last two tokens stand further on in the draft.
  void take(std::int32_t token);

 private:
  std::span<const std::int32_t> earlier_;
  std::size_t at_ = 0;  // of the token that is expected, or was when they parted
  bool parted_ = false;
  std::int32_t before_ = -1;  // the answer's last token
};

/// How many guesses each of `drafting` sequences may add to a pass of one row for each of
/// `sequences`, of at most `most_rows` rows in all; 0 where more than kMostDecoded are decoded.
std::int64_t guesses_of_each(std::int64_t sequences, std::int64_t drafting, std::int64_t most_rows);

}  // namespace evalcar::engine
