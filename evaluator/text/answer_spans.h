// Where the assistant's answers stand in a rendered conversation: what a trainer computes its loss
// over.
#pragma once

#include <vector>

#include "evaluator/text/chat_template.h"
#include "store/base/result.h"

namespace evalcar::text {

/// The conversation as its template renders it, and its answers.
///
/// Where the template has {% generation %}, they are what those blocks put out (transformers'
/// return_assistant_tokens_mask, TRL's assistant_only_loss). Else an answer is what the template
/// adds to the messages before it, rendered with a generation prompt, when the answer follows: for
/// ChatML "…<|im_end|>\n". One of the first message begins behind the generation prompt's first
/// place in that message, rendered alone. `last_only`: the last of them alone. kInvalidArgument
/// where the template renders an answer differently when more follows (Qwen3's drops the thoughts
/// of earlier turns), so that its tokens are not those that a trainer of single turns saw.
Result<ChatTemplate::Marked> render_with_answers(const ChatTemplate& chat_template,
                                                 const std::vector<Message>& messages,
                                                 ContentForm form, bool last_only);

}  // namespace evalcar::text
