#include "store/checkpoint/config_warnings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "store/checkpoint/known_text_models.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::array<std::string_view, 6> kOfLayer = {
    "input_layernorm.weight",  "post_attention_layernorm.weight", "self_attn.q_proj.weight",
    "self_attn.k_proj.weight", "self_attn.v_proj.weight",         "self_attn.o_proj.weight"};
constexpr std::array<std::string_view, 3> kOfDense = {"mlp.gate_proj.weight", "mlp.up_proj.weight",
                                                      "mlp.down_proj.weight"};
constexpr std::array<std::string_view, 3> kQueryBiases = {
    "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"};
constexpr std::array<std::string_view, 1> kOutputBiases = {"self_attn.o_proj.bias"};
constexpr std::array<std::string_view, 2> kQueryNorms = {"self_attn.q_norm.weight",
                                                         "self_attn.k_norm.weight"};
constexpr std::array<std::string_view, 1> kRouter = {"mlp.gate.weight"};
constexpr std::array<std::string_view, 2> kStackedExperts = {"mlp.experts.gate_up_proj",
                                                             "mlp.experts.down_proj"};
constexpr std::array<std::string_view, 3> kOfExpert = {"gate_proj.weight", "up_proj.weight",
                                                       "down_proj.weight"};
constexpr std::string_view kExperts = "mlp.experts.";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kTower = "visual.";
constexpr std::string_view kPatches = "patch_embed.proj.weight";
constexpr std::string_view kOfBlock = "attn.qkv.weight";
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kNorm = "norm.weight";
constexpr std::string_view kLayers = "layers.";
/// More than any model has.
constexpr std::uint64_t kMostLayers = 10'000;
/// A configuration that says more makes no longer list.
constexpr std::size_t kMostMissing = 100'000;

/// The text model's tensors by the names that all generations share.
class TextTensors {
 public:
  explicit TextTensors(const Plan& plan) {
    for (const TensorPlan& tensor : plan.tensors) {
      const std::string name = shared_name(tensor.name);
      in_unknown_module_ = in_unknown_module_ || is_of_layer_elsewhere(name);
      if (name == kEmbedding) embedding_ = &tensor;
      has_head_ = has_head_ || name == kHead || name.ends_with("." + std::string(kHead));
      if (name.starts_with(kTower)) tower_.insert(name.substr(kTower.size()));
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
  bool has_head() const { return has_head_; }
  /// Whether the text model was saved by itself, as models of embeddings are, whose configurations
  /// name the class that they were made of.
  bool is_bare() const { return embedding_ != nullptr && embedding_->name == kEmbedding; }
  bool has_in_tower(std::string_view name) const { return tower_.contains(name); }
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
  std::set<std::string, std::less<>> tower_;
  bool has_head_ = false;
  bool in_unknown_module_ = false;
};

std::string about_size(const TensorPlan* tensor, std::size_t dimension, std::string_view key,
                       const std::optional<std::uint64_t>& stated) {
  if (tensor == nullptr || !stated || tensor->shape.size() <= dimension) return {};
  if (static_cast<std::uint64_t>(tensor->shape[dimension]) == *stated) return {};
  return std::string(key) + " is " + std::to_string(*stated) + ", but " + quote_name(tensor->name) +
         " has the shape " + shape_text(tensor->shape);
}

/// Names that a model of the configuration has and the weights lack, told in the order of adding.
class Missing {
 public:
  void add(std::string name) { names_.push_back(std::move(name)); }
  /// No model lacks so many: there is no need to look further.
  bool is_enough() const { return names_.size() >= kMostMissing; }
  std::string told() const {
    if (names_.empty()) return {};
    constexpr std::size_t kTold = 3;
    std::string text = "the weights lack ";
    for (std::size_t i = 0; i < std::min(names_.size(), kTold); ++i)
      text += (i == 0 ? "" : ", ") + names_[i];
    if (names_.size() > kTold) text += " and " + std::to_string(names_.size() - kTold) + " more";
    return text + ", which a model of this configuration has";
  }

 private:
  std::vector<std::string> names_;
};

/// Looks for what one layer has, by what the configuration says.
class LayerLook {
 public:
  LayerLook(const TextTensors& tensors, const KnownTextModel& config, std::uint64_t layer,
            Missing& missing)
      : tensors_(tensors), config_(config), layer_(layer), missing_(missing) {}

  void attention() {
    all(kOfLayer);
    if (config_.has_query_norms) all(kQueryNorms);
    if (config_.has_query_biases) all(kQueryBiases);
    if (config_.has_output_biases) all(kOutputBiases);
  }
  /// A mixture may have dense layers, and experts one by one or in two tensors.
  void mlp() {
    if (!config_.has_experts || tensors_.has(layer_, kOfDense[0])) return all(kOfDense);
    all(kRouter);
    if (tensors_.has(layer_, kStackedExperts[0])) return all(kStackedExperts);
    const std::uint64_t experts = config_.experts.value_or(1);
    for (std::uint64_t expert = 0; expert < experts && !missing_.is_enough(); ++expert) {
      const std::string prefix = std::string(kExperts) + std::to_string(expert) + ".";
      for (const std::string_view name : kOfExpert) one(prefix + std::string(name));
    }
  }

 private:
  void one(std::string_view name) {
    if (tensors_.has(layer_, name)) return;
    missing_.add(std::string(kLayers) + std::to_string(layer_) + "." + std::string(name));
  }
  void all(std::span<const std::string_view> names) {
    for (const std::string_view name : names) one(name);
  }

  const TextTensors& tensors_;
  const KnownTextModel& config_;
  std::uint64_t layer_;
  Missing& missing_;
};

void look_at_tower(const TextTensors& tensors, std::uint64_t blocks, Missing& missing) {
  if (!tensors.has_in_tower(kPatches)) missing.add(std::string(kTower) + std::string(kPatches));
  for (std::uint64_t block = 0; block < blocks && !missing.is_enough(); ++block) {
    const std::string name = "blocks." + std::to_string(block) + "." + std::string(kOfBlock);
    if (!tensors.has_in_tower(name)) missing.add(std::string(kTower) + name);
  }
}

std::string about_missing(const TextTensors& tensors, const KnownTextModel& config) {
  Missing missing;
  if (tensors.embedding() == nullptr) missing.add(std::string(kEmbedding));
  if (tensors.norm() == nullptr) missing.add(std::string(kNorm));
  if (config.has_own_head && !tensors.has_head() && !tensors.is_bare()) {
    missing.add(std::string(kHead));
  }
  const std::uint64_t layers = config.layers.value_or(tensors.layer_count());
  for (std::uint64_t layer = 0; layer < layers && !missing.is_enough(); ++layer) {
    LayerLook look(tensors, config, layer, missing);
    look.attention();
    look.mlp();
  }
  if (config.tower_blocks) look_at_tower(tensors, *config.tower_blocks, missing);
  return missing.told();
}

std::string about_layers(const TextTensors& tensors, const KnownTextModel& config) {
  if (!config.layers || tensors.layer_count() <= *config.layers) return {};
  return "num_hidden_layers is " + std::to_string(*config.layers) + ", but the weights have " +
         std::to_string(tensors.layer_count()) + " layers";
}

}  // namespace

std::vector<std::string> warnings_of_config(const FileSystem& files, const std::string& folder,
                                            const Plan& plan) {
  if (folder.empty()) return {};
  const std::string path = join_path(folder, "config.json");
  const auto config = read_known_text_model(files, path);
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
