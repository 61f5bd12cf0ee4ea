#include "store/checkpoint/model_config.h"

#include <algorithm>
#include <array>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kQuantization = "quantization_config";
constexpr std::array<std::string_view, 8> kNumbers = {
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size",
    "vocab_size",        "num_experts",         "num_local_experts",   "depth"};

class ConfigScan final : public JsonVisitor {
 public:
  ModelConfig found;

 private:
  /// Of the value at `path`; null: of none that is asked for.
  ConfigPart* part_around(const JsonPath& path) {
    if (path.size() == 1) return &found.whole;
    return path.size() == 2 ? part_called(path.front()) : nullptr;
  }
  ConfigPart* part_called(std::string_view key) {
    if (key == "text_config") return &found.text;
    return key == "vision_config" ? &found.tower : nullptr;
  }

  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    using Kind = JsonScalar::Kind;
    if (path.size() == 2 && path.front() == "architectures" && value.kind == Kind::kString) {
      found.generates |=
          value.text.ends_with("ForCausalLM") || value.text.ends_with("ForConditionalGeneration");
    }
    ConfigPart* const part = part_around(path);
    if (part == nullptr) return {};
    const std::string& key = path.back();
    if (key == kQuantization) part->is_quantized = true;
    if (value.kind == Kind::kString && key == "model_type") part->model_type = value.text;
    if (value.kind == Kind::kBool && key == "attention_bias") part->has_biases = value.boolean;
    if (value.kind == Kind::kBool && key == kTieKey) part->is_tied = value.boolean;
    if (value.kind == Kind::kUnsigned && std::ranges::find(kNumbers, key) != kNumbers.end()) {
      part->numbers.emplace(key, value.number);
    }
    return {};
  }
  std::string open(const JsonPath& path, bool is_array) override {
    if (path.empty()) found.whole.is_there = !is_array;
    if (path.size() == 1) {
      if (ConfigPart* const part = part_called(path.front())) part->is_there = !is_array;
    }
    ConfigPart* const part = part_around(path);
    if (part != nullptr && path.back() == kQuantization) part->is_quantized = true;
    return {};
  }
  std::string close(const JsonPath&) override { return {}; }
};

}  // namespace

std::optional<std::uint64_t> ConfigPart::number(std::string_view key) const {
  const auto place = numbers.find(key);
  return place == numbers.end() ? std::nullopt : std::optional(place->second);
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& where) {
  ConfigScan scan;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, where, kMaxConfigDepth, scan));
  return std::move(scan.found);
}

}  // namespace evalcar::checkpoint
