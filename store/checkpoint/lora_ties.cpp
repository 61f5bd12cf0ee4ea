#include "store/checkpoint/lora_ties.h"

#include <vector>

#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {
namespace {

class TieFinder final : public JsonVisitor {
 public:
  BaseTies found;

 private:
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    const bool here = path.size() == 1 || (path.size() == 2 && path[0] == "text_config");
    if (here && path.back() == "tie_word_embeddings" && value.kind == JsonScalar::Kind::kBool) {
      (value.boolean ? found.tied : found.untied) = true;
    }
    if (path.size() == 2 && path[0] == "architectures" && value.kind == JsonScalar::Kind::kString) {
      for (const char* const with_head : {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"})
        found.language_head |= value.text.find(with_head) != std::string_view::npos;
    }
    return {};
  }
  std::string open(const JsonPath&, bool) override { return {}; }
  std::string close(const JsonPath&) override { return {}; }
};

/// As transformers' classes name the head of a model with such an embedding.
std::string head_name_of(std::string_view embedding) {
  for (const char* const part : {"embed_tokens.weight", "wte.weight", "word_embeddings.weight"}) {
    if (!embedding.ends_with(part)) continue;
    // LLaVA and its like before transformers 4.52 hold a whole model of text.
    constexpr std::string_view kWhole = "language_model.model.";
    return embedding.starts_with(kWhole) ? "language_model.lm_head.weight" : "lm_head.weight";
  }
  return {};
}

}  // namespace

Result<BaseTies> read_base_ties(const FileSystem& files, const Folder& base) {
  if (!base.has("config.json")) return BaseTies{};
  const std::string path = join_path(base.path, "config.json");
  EVALCAR_ASSIGN_OR_RETURN(const auto file, open_inside(files, base, "config.json"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxConfigBytes));
  TieFinder finder;
  constexpr std::size_t kMaxDepth = 64;
  EVALCAR_RETURN_IF_ERROR(scan_json(text, path, kMaxDepth, finder));
  finder.found.untied &= !finder.found.tied;
  return finder.found;
}

Result<std::optional<TiedWeights>> find_tied_weights(const Plan& base, const BaseTies& ties) {
  std::vector<std::size_t> embeddings;
  std::vector<std::size_t> heads;
  for (std::size_t i = 0; i < base.tensors.size(); ++i) {
    if (is_input_embedding(base.tensors[i].name)) embeddings.push_back(i);
    if (is_output_head(base.tensors[i].name)) heads.push_back(i);
  }
  if (!ties.tied && (ties.untied || !heads.empty())) return std::optional<TiedWeights>();
  if (embeddings.size() != 1 || heads.size() > 1) {
    return make_error(ErrorCode::kUnsupported,
                      "changes an embedding or an output head of a base model with " +
                          std::to_string(embeddings.size()) + " embeddings and " +
                          std::to_string(heads.size()) +
                          " output heads: which of them are tied cannot be told");
  }
  TiedWeights tied{embeddings.front(), std::nullopt, ""};
  const TensorPlan& embedding = base.tensors[tied.embedding];
  if (ties.tied || ties.language_head) tied.head_name = head_name_of(embedding.name);
  if (heads.empty()) return std::optional(tied);
  const TensorPlan& head = base.tensors[heads.front()];
  if (head.shape != embedding.shape || head.dtype != embedding.dtype) {
    return make_error(ErrorCode::kUnsupported,
                      "changes one of " + quote_name(embedding.name) + " and " +
                          quote_name(head.name) +
                          ", which the base model's configuration ties, but which differ");
  }
  tied.head = heads.front();
  tied.head_name = head.name;
  return std::optional(tied);
}

}  // namespace evalcar::checkpoint
