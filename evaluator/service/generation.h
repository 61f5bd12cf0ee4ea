// What an answer is generated with: the task's settings, the user's, and the checkpoint's
// generation_config.json, put together as lmms-eval 0.7.3's Qwen2.5-VL chat wrapper does it
// (lmms_eval/models/chat/qwen2_5_vl.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "evaluator/engine/engine.h"
#include "evaluator/tasks/task_file.h"
#include "evaluator/text/tokenizer.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// What of generation_config.json reaches a greedy answer there. The wrapper overrides the rest
/// (sampling, beams, eos).
struct GenerationConfig {
  double repetition_penalty = 1;
};

/// A missing file means defaults. kUnsupported names a key that would change answers and is not
/// implemented (no_repeat_ngram_size, suppress_tokens, …): a different answer is worse than none.
Result<GenerationConfig> load_generation_config(const FileSystem& files, const std::string& dir);

/// "k=v,k=v" over the task's own settings. kInvalidArgument names an unknown key.
Result<tasks::GenerationDefaults> apply_gen_kwargs(tasks::GenerationDefaults defaults,
                                                   std::string_view gen_kwargs);

/// The effective settings of one task; `most_tokens` is Wrapper::most_tokens. kInvalidArgument
/// where the tokenizer names no end token.
Result<engine::GenerationSettings> effective_generation(
    const tasks::GenerationDefaults& task, const protocol::EvaluationSettings& settings,
    const GenerationConfig& config, const text::Tokenizer& tokenizer, std::int64_t most_tokens);

/// The same as one JSON object, for the result's configs.
std::string generation_json(const engine::GenerationSettings& settings,
                            const tasks::GenerationDefaults& task);

}  // namespace evalcar::service
