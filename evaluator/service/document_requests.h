// What is asked of the engine for one document: its prompt as tokens, and for the kinds that score
// given tokens which of them. Encoded as lm-eval encodes them, where it has the kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/model_text.h"
#include "evaluator/service/wrapper.h"
#include "evaluator/tasks/task.h"
#include "store/base/result.h"

namespace evalcar::service {

/// Of one document. Pictures, generation and stream are the caller's to fill in.
struct DocumentRequests {
  /// Several where a text is scored in windows; none of a conversation whose answers are all cut.
  std::vector<engine::Request> requests;
  bool cut = false;  ///< behind [request] max_length
};

/// What it takes to make them; the references must outlive it.
struct RequestEncoder {
  const ModelText& model;
  const Wrapper& wrapper;
  std::int32_t image_token_id = -1;
  std::int64_t max_positions = 0;  ///< of the model; 0: not known

  /// `placeholders`: tokens of each of the prompt's pictures. kInvalidArgument and kCorruption say
  /// what of the document cannot be asked.
  Result<DocumentRequests> requests_of(const tasks::RequestDefinition& kind,
                                       const tasks::Prompt& prompt,
                                       const std::vector<std::int64_t>& placeholders) const;
};

/// lm-eval's _encode_pair: blanks at the end of the context go to the continuation, whose tokens
/// are those of both together less the context's. No special tokens are put around. (context,
/// continuation)
Result<std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>> encode_pair(
    const text::Tokenizer& tokenizer, std::string_view context, std::string_view continuation);

/// lm-eval's rolling windows of at most `max_length` scored tokens: the first token is given
/// `prefix`; every other one what stands before it in its window. Each token is scored once.
std::vector<engine::Request> rolling_windows(const std::vector<std::int32_t>& tokens,
                                             std::int32_t prefix, std::int64_t max_length);

/// Tokens of `text` that stand for its bytes [begin, end), given as (first, behind the last): one
/// that reaches over an end is among them; of a last character that is several tokens, its first
/// alone, as transformers' char_to_token has it. `ids`: of the whole text.
Result<std::pair<std::size_t, std::size_t>> tokens_of_bytes(const text::Tokenizer& tokenizer,
                                                            std::string_view text,
                                                            const std::vector<std::int32_t>& ids,
                                                            std::size_t begin, std::size_t end);

}  // namespace evalcar::service
