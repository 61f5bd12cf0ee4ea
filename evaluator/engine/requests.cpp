#include "evaluator/engine/requests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "evaluator/engine/image_encoder.h"

namespace evalcar::engine {
namespace {

Error wrong(const std::string& what) { return make_error(ErrorCode::kInvalidArgument, what); }

Status check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab)
      return wrong("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                   ", and the model knows " + std::to_string(vocab) +
                   ": the tokenizer does not belong to the model");
  }
  return {};
}

Status check_generation(const GenerationSettings& settings) {
  if (settings.max_new_tokens < 1 || settings.max_new_tokens > (1 << 20))
    return wrong("max_new_tokens is " + std::to_string(settings.max_new_tokens));
  if (!(settings.repetition_penalty > 0) || !(settings.temperature >= 0) || !(settings.top_p > 0))
    return wrong("repetition_penalty and top_p must be above 0, temperature at least 0");
  return {};
}

Status check_scoring(const Scoring& scoring, std::span<const std::int32_t> tokens,
                     const models::ModelInfo& info) {
  if (scoring.spans.empty() && scoring.continuations.empty())
    return wrong("no tokens to score: neither a span nor a continuation");
  std::int64_t before = 1;
  for (const TokenSpan& span : scoring.spans) {
    if (span.begin < before || span.end <= span.begin ||
        span.end > static_cast<std::int64_t>(tokens.size()))
      return wrong("the span of tokens " + std::to_string(span.begin) + " to " +
                   std::to_string(span.end) + " of " + std::to_string(tokens.size()) +
                   ": expected at least one token, behind token 0 and behind the span before it");
    before = span.end;
  }
  for (std::size_t c = 0; c < scoring.continuations.size(); ++c) {
    const std::vector<std::int32_t>& continuation = scoring.continuations[c];
    if (continuation.empty()) return wrong("continuation " + std::to_string(c) + " has no tokens");
    if (Status known = check_tokens(continuation, info.vocab); !known.has_value())
      return with_context(std::move(known).error(), "continuation " + std::to_string(c));
    for (const std::int32_t token : continuation) {
      if (token == info.image_token_id)
        return wrong("continuation " + std::to_string(c) + " holds the placeholder of a picture");
    }
  }
  return {};
}

Status check_request(const Request& request, const models::ModelInfo& info) {
  if (request.tokens.empty()) return wrong("the prompt has no tokens");
  EVALCAR_RETURN_IF_ERROR(check_tokens(request.tokens, info.vocab));
  return request.scoring ? check_scoring(*request.scoring, request.tokens, info)
                         : check_generation(request.generation);
}

// A hint may be wrong, and no request fails for it: another checkpoint may have had another
// vocabulary.
std::span<const std::int32_t> usable_draft(const Request& request, std::int64_t vocab) {
  const bool greedy = request.generation.temperature == 0;
  return greedy && check_tokens(request.draft, vocab) ? std::span(request.draft)
                                                      : std::span<const std::int32_t>();
}

// Continuations stand behind the tokens, and each goes on from their last place.
void add_branches(const Request& request, PreparedRequest& prepared) {
  for (const auto& continuation : request.scoring->continuations) {
    const auto begin = static_cast<std::int64_t>(prepared.line.size());
    prepared.line.insert(prepared.line.end(), continuation.begin(), continuation.end() - 1);
    for (std::size_t i = 0; i + 1 < continuation.size(); ++i) {
      prepared.branch_begin.push_back(begin);
      for (auto& axis : prepared.positions.axes)
        axis.push_back(prepared.positions.next + static_cast<std::int64_t>(i));
    }
  }
}

}  // namespace

Result<PreparedRequest> prepare_request(const models::Model& model, const Request& request,
                                        const ImageSource& images) {
  EVALCAR_RETURN_IF_ERROR(check_request(request, model.info()));
  std::vector<models::ImageGrid> grids;
  for (const std::size_t image : request.images) {
    EVALCAR_ASSIGN_OR_RETURN(const models::ImageGrid grid, grid_of(images, image));
    if (auto tokens = model.image_tokens(grid); !tokens.has_value())
      return with_context(std::move(tokens).error(), "picture " + std::to_string(image));
    grids.push_back(grid);
  }
  PreparedRequest prepared;
  EVALCAR_ASSIGN_OR_RETURN(prepared.positions, model.positions(request.tokens, grids));
  prepared.plan.tokens = request.tokens;
  for (std::size_t j = 0; j < request.images.size(); ++j)
    prepared.plan.images.push_back(
        {prepared.positions.images[j].first, images.key_of(request.images[j])});
  if (!request.scoring) {
    prepared.plan.max_new_tokens = request.generation.max_new_tokens;
    // Pictures that were encoded together are found again together (encoded_pictures.h): what shows
    // some keeps its place from checkpoint to checkpoint.
    if (request.expected_tokens.has_value() && request.images.empty())
      prepared.plan.expected_tokens = std::max<std::int64_t>(*request.expected_tokens, 0);
    prepared.draft = usable_draft(request, model.info().vocab);
    return prepared;
  }
  if (!request.scoring->continuations.empty()) {
    prepared.line = request.tokens;
    add_branches(request, prepared);
    prepared.plan.branch_tokens = static_cast<std::int64_t>(prepared.branch_begin.size());
  }
  // The scores of a row are those of the request that reads it.
  if (!request.scoring->spans.empty())
    prepared.plan.own_from = request.scoring->spans.front().begin - 1;
  return prepared;
}

std::vector<ScoredToken> scored_tokens(const Request& request) {
  const Scoring& scoring = *request.scoring;
  std::vector<ScoredToken> scored;
  for (std::size_t s = 0; s < scoring.spans.size(); ++s) {
    for (std::int64_t i = scoring.spans[s].begin; i < scoring.spans[s].end; ++i)
      scored.push_back({i - 1, request.tokens[static_cast<std::size_t>(i)], s});
  }
  const auto last = static_cast<std::int64_t>(request.tokens.size()) - 1;
  for (std::size_t c = 0; c < scoring.continuations.size(); ++c)
    scored.push_back({last, scoring.continuations[c].front(), scoring.spans.size() + c});
  std::int64_t row = last + 1;
  for (std::size_t c = 0; c < scoring.continuations.size(); ++c) {
    for (std::size_t i = 1; i < scoring.continuations[c].size(); ++i)
      scored.push_back({row++, scoring.continuations[c][i], scoring.spans.size() + c});
  }
  return scored;
}

}  // namespace evalcar::engine
