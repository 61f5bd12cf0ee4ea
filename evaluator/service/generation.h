// What an answer is generated with: the task's settings, the user's, and the checkpoint's
// generation_config.json, put together as lmms-eval 0.7.3's wrappers
// (lmms_eval/models/chat/{qwen2_5_vl,qwen3_vl,llava_hf,huggingface}.py) and transformers'
// _prepare_generation_config do it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/tasks/task_file.h"
#include "evaluator/text/tokenizer.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

struct Wrapper;

/// What of generation_config.json reaches an answer there. The wrapper overrides the rest
/// (temperature, beams).
struct GenerationConfig {
  double repetition_penalty = 1;
  /// eos_token_id: under compat "strict" alone, since every wrapper hands over the tokenizer's.
  std::vector<std::int32_t> end_ids;
  // Of drawn answers alone, and not with every wrapper:
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  /// What else would narrow the draw and is not implemented, as "FILE: min_p = 0.05"; else empty.
  std::string unsupported_draw;
  // What is no such value is told only where it would count; else empty.
  std::string wrong_top_k;
  std::string wrong_top_p;
  std::string wrong_end_ids;
};

/// Where the file is missing, those values of config.json, then of its text_config, as transformers
/// takes them; else defaults. kUnsupported names a key that would change answers and is not
/// implemented (no_repeat_ngram_size, suppress_tokens, …): a different answer is worse than none.
Result<GenerationConfig> load_generation_config(const FileSystem& files, const std::string& dir);

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
