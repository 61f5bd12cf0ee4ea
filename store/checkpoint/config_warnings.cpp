#include "store/checkpoint/config_warnings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {
namespace {

/// `model_type` of text models, alone or as a part, with these names of tensors.
constexpr std::array<std::string_view, 7> kDense = {
    "llama", "mistral", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3", "qwen3_vl_text"};
/// The same, but that some of their layers are mixtures.
constexpr std::array<std::string_view, 2> kMixtures = {"qwen3_moe", "qwen3_vl_moe_text"};
/// Of models whose configuration of text lay at the top before transformers 4.52.
constexpr std::array<std::string_view, 2> kFlat = {"qwen2_vl", "qwen2_5_vl"};

constexpr std::array<std::string_view, 6> kOfLayer = {
    "input_layernorm.weight",  "post_attention_layernorm.weight", "self_attn.q_proj.weight",
    "self_attn.k_proj.weight", "self_attn.v_proj.weight",         "self_attn.o_proj.weight"};
constexpr std::array<std::string_view, 3> kOfDense = {"mlp.gate_proj.weight", "mlp.up_proj.weight",
                                                      "mlp.down_proj.weight"};
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kNorm = "norm.weight";
constexpr std::string_view kLayers = "layers.";
/// More than any model has; a configuration that says more makes no long list.
constexpr std::uint64_t kMostLayers = 10'000;

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// What is known of a text model.
struct TextConfig {
  bool mixture = false;
  std::optional<std::uint64_t> layers;  ///< absent, like the others: not stated
  std::optional<std::uint64_t> hidden;
  std::optional<std::uint64_t> vocabulary;
};

/// The few keys of a configuration that are asked for; a file of any form costs no more than its
/// own text.
class ConfigScan final : public JsonVisitor {
 public:
  std::optional<TextConfig> text_config() const {
    const Part& text = text_.is_there ? text_ : top_;
    if (!top_.is_there || top_.quantized || text.quantized) return std::nullopt;
    const bool known = is_one_of(text.model_type, kDense) ||
                       is_one_of(text.model_type, kMixtures) ||
                       (!text_.is_there && is_one_of(text.model_type, kFlat));
    if (!known) return std::nullopt;
    // Of the text model's own configuration, else of the one around it.
    const auto number = [&](std::string_view key) {
      const auto own = text.numbers.find(key);
      if (own != text.numbers.end()) return std::optional(own->second);
      const auto around = top_.numbers.find(key);
      return around == top_.numbers.end() ? std::nullopt : std::optional(around->second);
    };
    return TextConfig{is_one_of(text.model_type, kMixtures), number("num_hidden_layers"),
                      number("hidden_size"), number("vocab_size")};
  }

 private:
  struct Part {
    bool is_there = false;
    bool quantized = false;
    std::string model_type;
    std::map<std::string, std::uint64_t, std::less<>> numbers;
  };
  static constexpr std::array<std::string_view, 3> kNumbers = {"num_hidden_layers", "hidden_size",
                                                               "vocab_size"};

  Part* part_around(const JsonPath& path) {
    if (path.size() == 1) return &top_;
    return path.size() == 2 && path.front() == "text_config" ? &text_ : nullptr;
  }
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    Part* const part = part_around(path);
    if (part == nullptr) return {};
    const std::string& key = path.back();
    part->quantized |= key == "quantization_config";
    if (key == "model_type" && value.kind == JsonScalar::Kind::kString)
      part->model_type = value.text;
    if (value.kind == JsonScalar::Kind::kUnsigned && is_one_of(key, kNumbers))
      part->numbers.emplace(key, value.number);
    return {};
  }
  std::string open(const JsonPath& path, bool is_array) override {
    if (path.empty()) top_.is_there = !is_array;
    if (path.size() == 1 && path.front() == "text_config") text_.is_there = !is_array;
    if (Part* const part = part_around(path))
      part->quantized |= path.back() == "quantization_config";
    return {};
  }
  std::string close(const JsonPath&) override { return {}; }

  Part top_;
  Part text_;
};

std::optional<TextConfig> read_text_config(const FileSystem& files, const std::string& path) {
  auto text = read_file(files, path, kMaxConfigBytes);
  if (!text.has_value()) return std::nullopt;
  replace_non_finite(*text);
  ConfigScan scan;
  if (!scan_json(*text, path, kMaxConfigDepth, scan).has_value()) return std::nullopt;
  return scan.text_config();
}

/// The text model's tensors by the names that all generations share.
class TextTensors {
 public:
  explicit TextTensors(const Plan& plan) {
    for (const TensorPlan& tensor : plan.tensors) {
      const std::string name = shared_name(tensor.name);
      in_unknown_module_ = in_unknown_module_ || is_of_layer_elsewhere(name);
      if (name == kEmbedding) embedding_ = &tensor;
      if (name == kNorm) norm_ = &tensor;
      if (!name.starts_with(kLayers)) continue;
      const std::size_t dot = name.find('.', kLayers.size());
      if (dot == std::string::npos) continue;
      std::uint64_t layer = 0;
      const char* const end = name.data() + dot;
      const auto read = std::from_chars(name.data() + kLayers.size(), end, layer);
      if (read.ec != std::errc() || read.ptr != end || layer >= kMostLayers) continue;
      layers_[layer].insert(name.substr(dot + 1));
    }
  }
  /// Whether there are layers of text, but in a module that no known model has them in.
  bool in_unknown_module() const {
    return in_unknown_module_ && embedding_ == nullptr && norm_ == nullptr && layers_.empty();
  }
  const TensorPlan* embedding() const { return embedding_; }
  const TensorPlan* norm() const { return norm_; }
  std::uint64_t layer_count() const { return layers_.empty() ? 0 : layers_.rbegin()->first + 1; }
  bool has(std::uint64_t layer, std::string_view name) const {
    const auto found = layers_.find(layer);
    return found != layers_.end() && found->second.contains(name);
  }

 private:
  static bool is_of_layer_elsewhere(std::string_view name) {
    constexpr std::string_view kFirst = ".layers.0.";
    const std::size_t found = name.find(kFirst);
    return found != std::string_view::npos && name.substr(found + kFirst.size()) == kOfLayer[0];
  }

  const TensorPlan* embedding_ = nullptr;
  const TensorPlan* norm_ = nullptr;
  std::map<std::uint64_t, std::set<std::string, std::less<>>> layers_;
  bool in_unknown_module_ = false;
};

std::string about_size(const TensorPlan* tensor, std::size_t dimension, std::string_view key,
                       const std::optional<std::uint64_t>& stated) {
  if (tensor == nullptr || !stated || tensor->shape.size() <= dimension) return {};
  if (static_cast<std::uint64_t>(tensor->shape[dimension]) == *stated) return {};
  return std::string(key) + " is " + std::to_string(*stated) + ", but " + quote_name(tensor->name) +
         " has the shape " + shape_text(tensor->shape);
}

std::string about_missing(const TextTensors& tensors, const TextConfig& config) {
  std::vector<std::string> missing;
  if (tensors.embedding() == nullptr) missing.emplace_back(kEmbedding);
  if (tensors.norm() == nullptr) missing.emplace_back(kNorm);
  const std::uint64_t layers = std::min(config.layers.value_or(tensors.layer_count()), kMostLayers);
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    const auto look_for = [&](std::span<const std::string_view> names) {
      for (const std::string_view name : names) {
        if (!tensors.has(layer, name)) {
          missing.push_back(std::string(kLayers) + std::to_string(layer) + "." + std::string(name));
        }
      }
    };
    look_for(kOfLayer);
    if (!config.mixture) look_for(kOfDense);
  }
  if (missing.empty()) return {};
  constexpr std::size_t kTold = 3;
  std::string text = "the weights lack ";
  for (std::size_t i = 0; i < std::min(missing.size(), kTold); ++i)
    text += (i == 0 ? "" : ", ") + missing[i];
  if (missing.size() > kTold) text += " and " + std::to_string(missing.size() - kTold) + " more";
  return text + ", which a model of this configuration has";
}

std::string about_layers(const TextTensors& tensors, const TextConfig& config) {
  if (!config.layers || tensors.layer_count() <= *config.layers) return {};
  return "num_hidden_layers is " + std::to_string(*config.layers) + ", but the weights have " +
         std::to_string(tensors.layer_count()) + " layers";
}

}  // namespace

std::vector<std::string> warnings_of_config(const FileSystem& files, const std::string& folder,
                                            const Plan& plan) {
  if (folder.empty()) return {};
  const std::string path = join_path(folder, "config.json");
  const auto config = read_text_config(files, path);
  if (!config) return {};
  const TextTensors tensors(plan);
  if (tensors.in_unknown_module()) return {};
  std::vector<std::string> warnings;
  for (const std::string& text :
       {about_size(tensors.embedding(), 1, "hidden_size", config->hidden),
        about_size(tensors.embedding(), 0, "vocab_size", config->vocabulary),
        about_size(tensors.norm(), 0, "hidden_size", config->hidden),
        about_layers(tensors, *config), about_missing(tensors, *config)}) {
    if (!text.empty()) warnings.push_back(path + ": " + text);
  }
  return warnings;
}

}  // namespace evalcar::checkpoint
