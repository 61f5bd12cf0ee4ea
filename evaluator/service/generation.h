// What an answer is generated with: the task's settings, the user's, and the checkpoint's
// generation_config.json, put together as lmms-eval 0.7.3's wrappers
// (lmms_eval/models/chat/{qwen2_5_vl,qwen3_vl,llava_hf,huggingface}.py) and transformers'
// _prepare_generation_config do it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "evaluator/engine/engine.h"
#include "evaluator/service/generation_config.h"
#include "evaluator/tasks/task_file.h"
#include "evaluator/text/tokenizer.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

struct Wrapper;

/// "k=v,k=v" over the task's own settings. kInvalidArgument names an unknown key.
Result<tasks::GenerationDefaults> apply_gen_kwargs(tasks::GenerationDefaults defaults,
                                                   std::string_view gen_kwargs);

/// The effective settings of one task. kCorruption where the tokenizer names no end token;
/// kInvalidArgument for a top_k that the wrapper would not hand over; kUnsupported where answers
/// are drawn and the checkpoint says to draw them in a way that is not implemented.
Result<engine::GenerationSettings> effective_generation(
    const tasks::GenerationDefaults& task, const protocol::EvaluationSettings& settings,
    const GenerationConfig& config, const text::Tokenizer& tokenizer, const Wrapper& wrapper);

/// The same as one JSON object, for the result's configs.
std::string generation_json(const engine::GenerationSettings& settings,
                            const tasks::GenerationDefaults& task);

}  // namespace evalcar::service
