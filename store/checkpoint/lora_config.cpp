#include "store/checkpoint/lora_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxPatterns = 20'000;
constexpr std::size_t kMaxPatternStates = 2048;  // of all patterns together
/// torch refuses more; real ones end at a few hundred.
constexpr std::int64_t kMaxRank = std::int64_t{1} << 20;

/// Keys that say nothing about the merged numbers, whatever their value.
constexpr std::array<std::string_view, 13> kHarmless = {
    "auto_mapping",        "eva_config",   "exclude_modules",  "inference_mode", "layers_pattern",
    "layers_to_transform", "lora_dropout", "lora_ga_config",   "loftq_config",   "corda_config",
    "megatron_core",       "peft_version", "qalora_group_size"};
/// Keys that are read here.
constexpr std::array<std::string_view, 15> kRead = {"base_model_name_or_path",
                                                    "revision",
                                                    "r",
                                                    "target_modules",
                                                    "lora_alpha",
                                                    "fan_in_fan_out",
                                                    "bias",
                                                    "use_rslora",
                                                    "modules_to_save",
                                                    "init_lora_weights",
                                                    "rank_pattern",
                                                    "alpha_pattern",
                                                    "peft_type",
                                                    "ensure_weight_tying",
                                                    "task_type"};

struct Refused {
  std::string_view key;
  std::string_view what;
};
constexpr std::array<Refused, 15> kRefused = {
    {{"use_dora", "DoRA (weight-decomposed updates)"},
     {"lora_bias", "a bias of lora_B"},
     {"layer_replication", "replicated layers"},
     {"target_parameters", "updates of bare parameters (fused experts)"},
     {"trainable_token_indices", "updates of single tokens"},
     {"use_qalora", "QALoRA"},
     {"alora_invocation_tokens", "activated LoRA (it applies to some tokens only)"},
     {"arrow_config", "Arrow routing"},
     {"kasa_config", "KaSA"},
     {"velora_config", "VeLoRA"},
     {"monteclora_config", "MonteCLoRA"},
     {"use_bdlora", "block-diagonal LoRA"},
     {"megatron_config", "Megatron's parallel layers"},
     {"enable_lora", "merged linear layers of peft before 0.3"},
     {"merge_weights", "an adapter of peft before 0.3 with merge_weights"}}};

/// Initialisations that leave the base weights as they are.
constexpr std::array<std::string_view, 4> kPlainInitialisations = {"gaussian", "eva", "orthogonal",
                                                                   "mica"};

/// null, false, 0, "", [] and {} say that a feature is not used.
bool says_nothing(const OrderedJson& value) {
  return value.is_null() || value == false || (value.is_number() && value == 0) ||
         ((value.is_string() || value.is_array() || value.is_object()) &&
          (value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty()));
}

class Reader {
 public:
  Reader(const OrderedJson& config, std::string_view where) : json_(config), where_(where) {}

  Result<LoraConfig> read() {
    EVALCAR_RETURN_IF_ERROR(check_keys());
    EVALCAR_RETURN_IF_ERROR(check_initialisation());
    LoraConfig config;
    if (const OrderedJson* path = find("base_model_name_or_path")) {
      if (!path->is_string()) return wrong("base_model_name_or_path", "a text");
      config.base_model = path->get<std::string>();
    }
    if (const OrderedJson* revision = find("revision")) {
      if (!revision->is_string()) return wrong("revision", "a text");
      config.revision = revision->get<std::string>();
    }
    EVALCAR_ASSIGN_OR_RETURN(config.r, rank(find("r"), "r"));
    EVALCAR_ASSIGN_OR_RETURN(config.alpha, real(find("lora_alpha"), "lora_alpha"));
    EVALCAR_ASSIGN_OR_RETURN(config.rank_stabilised, flag("use_rslora"));
    EVALCAR_ASSIGN_OR_RETURN(config.fan_in_fan_out, flag("fan_in_fan_out"));
    EVALCAR_ASSIGN_OR_RETURN(config.ties_adapters, flag("ensure_weight_tying"));
    if (const OrderedJson* task = find("task_type")) {
      config.of_language_model = *task == "CAUSAL_LM" || *task == "SEQ_2_SEQ_LM";
    }
    EVALCAR_RETURN_IF_ERROR(read_bias(config));
    EVALCAR_RETURN_IF_ERROR(read_patterns(config));
    if (const OrderedJson* targets = find("target_modules");
        targets != nullptr && targets->is_array()) {
      EVALCAR_ASSIGN_OR_RETURN(config.target_modules, names("target_modules"));
    }
    EVALCAR_ASSIGN_OR_RETURN(config.modules_to_save, names("modules_to_save"));
    return config;
  }

 private:
  /// Absent for null too.
  const OrderedJson* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  Error wrong(const std::string& key, const std::string& expected) const {
    const auto found = json_.find(key);
    const std::string seen =
        found == json_.end()
            ? "is missing"
            : "is " + quote_name(found->dump(-1, ' ', true, OrderedJson::error_handler_t::replace));
    return make_error(ErrorCode::kCorruption,
                      where_ + ": \"" + key + "\" " + seen + ", expected " + expected);
  }
  Error refused(const std::string& what) const {
    return make_error(
        ErrorCode::kUnsupported,
        where_ + ": " + what + ", which is not merged here; merge it with peft (merge_and_unload)");
  }

  Status check_keys() const {
    if (const OrderedJson* type = find("peft_type"); type == nullptr || !type->is_string()) {
      return wrong("peft_type", "\"LORA\"");
    } else if (*type != "LORA") {
      return refused("the adapter is of type " + quote_name(type->get<std::string>()));
    }
    for (const auto& [key, value] : json_.items()) {
      if (std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end() ||
          std::find(kRead.begin(), kRead.end(), key) != kRead.end() || says_nothing(value)) {
        continue;
      }
      const auto known =
          std::find_if(kRefused.begin(), kRefused.end(),
                       [&, name = key](const Refused& each) { return each.key == name; });
      if (known != kRefused.end()) {
        return refused("\"" + key + "\": the adapter uses " + std::string(known->what));
      }
      return refused("the key " + quote_name(key) + " is not known");
    }
    return {};
  }

  Status check_initialisation() const {
    const OrderedJson* const how = find("init_lora_weights");
    if (how == nullptr || how->is_boolean()) return {};
    if (!how->is_string()) return wrong("init_lora_weights", "true, false or a name");
    const auto name = how->get<std::string>();
    if (std::find(kPlainInitialisations.begin(), kPlainInitialisations.end(), name) !=
        kPlainInitialisations.end()) {
      return {};
    }
    return refused("\"init_lora_weights\" is " + quote_name(name) +
                   ", which changes the base weights before training (convert the adapter with "
                   "path_initial_model_for_weight_conversion)");
  }

  Result<std::int64_t> rank(const OrderedJson* value, const std::string& key) const {
    if (value == nullptr || !value->is_number_integer()) return wrong(key, "a positive integer");
    const bool fits = value->is_number_unsigned()
                          ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxRank)
                          : value->get<std::int64_t>() >= 0;
    if (!fits || *value == 0) return wrong(key, "a positive integer up to 1048576");
    return value->get<std::int64_t>();
  }

  Result<double> real(const OrderedJson* value, const std::string& key) const {
    if (value == nullptr || !value->is_number()) return wrong(key, "a number");
    const auto number = value->get<double>();
    if (!std::isfinite(number)) return wrong(key, "a finite number");
    return number;
  }

  Result<bool> flag(const char* key) const {
    const OrderedJson* const value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return wrong(key, "true or false");
    return value->get<bool>();
  }

  Status read_bias(LoraConfig& config) const {
    const OrderedJson* const bias = find("bias");
    if (bias == nullptr || *bias == "none") return {};
    if (*bias != "all" && *bias != "lora_only") {
      return wrong("bias", "\"none\", \"all\" or \"lora_only\"");
    }
    config.bias = true;
    return {};
  }

  Status read_patterns(LoraConfig& config) const {
    std::size_t states = 0;
    for (const char* const key : {"rank_pattern", "alpha_pattern"}) {
      const OrderedJson* const patterns = find(key);
      if (patterns == nullptr) continue;
      if (!patterns->is_object()) return wrong(key, "an object");
      if (patterns->size() > kMaxPatterns) return refused(std::string(key) + " is too long");
      for (const auto& [text, value] : patterns->items()) {
        auto pattern = NamePattern::compile(text);
        if (!pattern.has_value()) {
          return make_error(pattern.error().code,
                            where_ + ": \"" + key + "\": " + pattern.error().message);
        }
        states += pattern->states();
        if (states > kMaxPatternStates) return refused(std::string(key) + " is too complex");
        const std::string what = std::string(key) + "\" of \"" + text;
        if (key == std::string_view("rank_pattern")) {
          EVALCAR_ASSIGN_OR_RETURN(const std::int64_t r, rank(&value, what));
          config.ranks.emplace_back(std::move(*pattern), r);
        } else {
          EVALCAR_ASSIGN_OR_RETURN(const double alpha, real(&value, what));
          config.alphas.emplace_back(std::move(*pattern), alpha);
        }
      }
    }
    return {};
  }

  Result<std::vector<std::string>> names(const char* key) const {
    std::vector<std::string> found;
    const OrderedJson* const value = find(key);
    if (value == nullptr) return found;
    if (!value->is_array()) return wrong(key, "a list of names");
    for (const OrderedJson& each : *value) {
      if (!each.is_string()) return wrong(key, "a list of names");
      found.push_back(each.get<std::string>());
    }
    return found;
  }

  const OrderedJson& json_;
  std::string where_;
};

template <typename Value>
Value first_match(const std::vector<std::pair<NamePattern, Value>>& patterns,
                  std::string_view module, Value otherwise) {
  for (const auto& [pattern, value] : patterns) {
    if (pattern.matches(module)) return value;
  }
  return otherwise;
}

bool ends_in_one_of(const std::vector<std::string>& names, std::string_view module) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return module == name || (module.size() > name.size() && module.ends_with(name) &&
                              module[module.size() - name.size() - 1] == '.');
  });
}

}  // namespace

std::int64_t LoraConfig::rank_of(std::string_view module) const {
  return first_match(ranks, module, r);
}

double LoraConfig::scale_of(std::string_view module) const {
  const double own_alpha = first_match(alphas, module, alpha);
  const auto own_rank = static_cast<double>(rank_of(module));
  return own_alpha / (rank_stabilised ? std::sqrt(own_rank) : own_rank);
}

bool LoraConfig::targets(std::string_view module) const {
  return !target_modules || ends_in_one_of(*target_modules, module);
}

bool LoraConfig::saves(std::string_view module) const {
  while (true) {
    const bool saved = std::any_of(modules_to_save.begin(), modules_to_save.end(),
                                   [&](const std::string& name) { return module.ends_with(name); });
    const std::size_t dot = module.rfind('.');
    if (saved || dot == std::string_view::npos) return saved;
    module = module.substr(0, dot);
  }
}

Result<LoraConfig> parse_lora_config(std::string_view text, std::string_view where) {
  // First without building anything: depth, duplicate keys, UTF-8.
  class Nothing final : public JsonVisitor {
    std::string scalar(const JsonPath&, const JsonScalar&) override { return {}; }
    std::string open(const JsonPath&, bool) override { return {}; }
    std::string close(const JsonPath&) override { return {}; }
  } nothing;
  constexpr std::size_t kMaxDepth = 16;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, where, kMaxDepth, nothing));
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) {
    return make_error(ErrorCode::kCorruption,
                      std::string(where) + ": is no JSON object, expected an adapter_config.json");
  }
  return Reader(json, where).read();
}

}  // namespace evalcar::checkpoint
