// tokenizer.json's "post_processor": the ids that stand around every text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "store/base/result.h"

namespace evalcar::text {

/// What is put around the ids of one text, as with add_special_tokens=True: Llama 3's BOS before.
struct Surroundings {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

/// Reads null, ByteLevel (it moves offsets, no ids), TemplateProcessing whose "single" holds the
/// text once, and a Sequence of these with at most one template. kUnsupported naming the type for
/// others; kCorruption for a template that names a special token it does not define or holds too
/// many ids. Whether the ids exist is for the caller to check. Reference:
/// tokenizers/src/processors/template.rs.
Result<Surroundings> read_post_processor(const nlohmann::json& description);

}  // namespace evalcar::text
