// adapter_config.json of PEFT: what LoRA needs of it. Everything in it that would change the
// numbers and is not computed here is refused by name; so is a key that peft 0.21.2 does not know,
// unless it says nothing (null, false, empty). Reference: peft 0.21.2, tuners/lora/config.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/name_pattern.h"

namespace evalcar::checkpoint {

/// Far above real ones, which take 1 KB, or 100 KB with a rank for each module.
inline constexpr std::uint64_t kMaxAdapterConfigBytes = std::uint64_t{1} << 20U;

struct LoraConfig {
  std::string base_model;  ///< base_model_name_or_path; may be empty
  std::string revision = "main";
  std::int64_t r = 0;
  double alpha = 0;
  bool rank_stabilised = false;  ///< use_rslora: alpha/√r
  bool fan_in_fan_out = false;
  bool ties_adapters = false;  ///< ensure_weight_tying: what shares a weight is updated alike
  /// task_type: the adapter was trained in a class with an output head, whatever the base names.
  bool of_language_model = false;
  bool bias = false;  ///< "all" or "lora_only": the adapter holds biases too
  /// In the order of the file: the first that matches a module's name counts.
  std::vector<std::pair<NamePattern, std::int64_t>> ranks;
  std::vector<std::pair<NamePattern, double>> alphas;
  /// Names that a module's name has to end in; absent: a pattern, or chosen by PEFT.
  std::optional<std::vector<std::string>> target_modules;
  std::vector<std::string> modules_to_save;

  std::int64_t rank_of(std::string_view module) const;
  /// alpha / r, or alpha / √r.
  double scale_of(std::string_view module) const;
  bool targets(std::string_view module) const;
  /// Whether the module, or one that it is in, is saved whole (by PEFT's rule: "head" says
  /// "lm_head").
  bool saves(std::string_view module) const;
};

/// Parses the file's text; `where` names it in errors. kCorruption for what is malformed,
/// kUnsupported by name for what is not computed here.
Result<LoraConfig> parse_lora_config(std::string_view text, std::string_view where);

}  // namespace evalcar::checkpoint
