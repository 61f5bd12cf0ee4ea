// What was found for a document of a kind that scores given tokens, and its form as a text: it
// travels and is stored where a generated answer would be.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"

namespace evalcar::tasks {

struct Likelihood {
  double log_likelihood = 0;  ///< natural logarithm, of all its tokens together
  std::int64_t tokens = 0;
  bool is_greedy = false;  ///< each token is the likeliest
  bool operator==(const Likelihood&) const = default;
};

/// [[log-likelihood, is greedy, tokens], …] as JSON; doubles read back to the same bits.
std::string encode_likelihoods(const std::vector<Likelihood>& likelihoods);
/// None: of a document of which nothing was scored. kCorruption for any other text, and where a
/// number is not finite or above 0.
Result<std::vector<Likelihood>> decode_likelihoods(std::string_view text);

/// One after the other: of a text that was scored in windows.
Likelihood joined(const std::vector<Likelihood>& likelihoods);

}  // namespace evalcar::tasks
