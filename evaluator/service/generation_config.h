// What a checkpoint's generation_config.json says of its answers, as transformers'
// _prepare_generation_config takes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::service {

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

}  // namespace evalcar::service
