// Requests as the engine computes them: checked, with positions, and laid out for the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/planner.h"
#include "evaluator/models/model.h"
#include "evaluator/models/positions.h"
#include "store/base/result.h"

namespace evalcar::engine {

/// What is known of a request before it runs: where its tokens and pictures stand. The slot of a
/// request with continuations holds its tokens, then each continuation but for its last token
/// (which is only scored): a line that branches.
struct PreparedRequest {
  models::PromptPositions positions;  ///< of the whole line
  PlanRequest plan;
  std::vector<std::int32_t> line;          ///< empty where it is the request's tokens alone
  std::vector<std::int64_t> branch_begin;  ///< of each token of the line behind the request's
  /// The request's, where it can be of use: of a greedy answer, and of tokens that the model knows.
  std::span<const std::int32_t> draft = {};
};

/// Checks a request against the model, the vocabulary and the pictures. kInvalidArgument says what
/// is wrong with it.
Result<PreparedRequest> prepare_request(const models::Model& model, const Request& request,
                                        const ImageSource& images);

/// A token that is scored by the row before it: `row` of the line gives the scores, `score` is the
/// Answer::scores that it counts for.
struct ScoredToken {
  std::int64_t row = 0;
  std::int32_t token = 0;
  std::size_t score = 0;
};

/// All of a request with `scoring`, rows ascending.
std::vector<ScoredToken> scored_tokens(const Request& request);

}  // namespace evalcar::engine
