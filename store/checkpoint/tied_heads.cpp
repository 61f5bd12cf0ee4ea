#include "store/checkpoint/tied_heads.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace evalcar::checkpoint {
namespace {

/// Heads that classes of transformers have at the top of a model, and how the embedding that they
/// are tied to ends; "": any.
struct Pair {
  std::string_view head;
  std::string_view embedding;
};
constexpr std::array<Pair, 16> kPairs = {{
    {"lm_head.weight", ""},
    {"embed_out.weight", "embed_in.weight"},                       // GPT-NeoX
    {"lm_head.decoder.weight", "word_embeddings.weight"},          // RoBERTa, MPNet, Longformer
    {"cls.predictions.decoder.weight", "word_embeddings.weight"},  // BERT, DeBERTa, MobileBERT
    {"predictions.decoder.weight", "word_embeddings.weight"},      // ALBERT
    {"generator_lm_head.weight", "word_embeddings.weight"},        // ELECTRA
    {"vocab_projector.weight", "word_embeddings.weight"},          // DistilBERT
    {"pred_layer.proj.weight", "transformer.embeddings.weight"},   // XLM, FlauBERT
    {"lm_head.out_proj.weight", "embed_tokens.weight"},            // T5Gemma
    {"lm_loss.weight", "word_embedding.weight"},                   // XLNet
    {"decoder.weight", "tok_embeddings.weight"},                   // ModernBERT
    {"output.weight", "tok_embeddings.weight"},                    // Llama as Meta calls it
    {"output.weight", "git.embeddings.word_embeddings.weight"},    // GIT
    {"proj_out.weight", "decoder.embed_tokens.weight"},            // Whisper, Moonshine
    {"output_projection.weight", "biogpt.embed_tokens.weight"},    // BioGPT
    {"output_projection.weight", "decoder.embed_tokens.weight"},   // TrOCR
}};

/// `model_type`s of models whose encoder and decoder share an embedding as long as they are tied.
constexpr std::array<std::string_view, 19> kSharing = {"bart",          "bigbird_pegasus",
                                                       "blenderbot",    "blenderbot-small",
                                                       "florence2",     "led",
                                                       "m2m_100",       "marian",
                                                       "mbart",         "mvp",
                                                       "nllb-moe",      "pegasus",
                                                       "pegasus_x",     "plbart",
                                                       "prophetnet",    "rag",
                                                       "seamless_m4t",  "seamless_m4t_v2",
                                                       "xlm-prophetnet"};

/// `model_type`s of models whose head is not called lm_head, and has no bias to show it.
constexpr std::array<std::string_view, 16> kWithoutLmHead = {"biogpt",
                                                             "distilbert",
                                                             "electra",
                                                             "flaubert",
                                                             "git",
                                                             "gpt_neox",
                                                             "gpt_neox_japanese",
                                                             "modernbert",
                                                             "moonshine",
                                                             "moonshine_streaming",
                                                             "modernbert-decoder",
                                                             "t5gemma",
                                                             "trocr",
                                                             "whisper",
                                                             "xlm",
                                                             "xlnet"};

/// Modules of which several layers share one, whatever model it is: Zamba.
constexpr std::array<std::string_view, 2> kSharedLayers = {".shared_transf.",
                                                           ".shared_transformer."};

constexpr std::string_view kLmHead = "lm_head.weight";
constexpr std::string_view kBias = ".bias";

bool ends_in_part(std::string_view name, std::string_view part) {
  return name.ends_with(part) &&
         (name.size() == part.size() || name[name.size() - part.size() - 1] == '.');
}

/// The weight of the layer that has this bias.
std::string weight_beside(std::string_view bias) {
  return std::string(bias.substr(0, bias.size() - kBias.size())) + ".weight";
}

}  // namespace

TiedHeads::TiedHeads(const TieConfig& config, std::span<const std::string_view> names)
    : config_(config) {
  const std::unordered_set<std::string_view> known(names.begin(), names.end());
  for (const std::string_view name : names) {
    if (may_be_tied_embedding(name)) embeddings_.push_back(name);
    shares_layers_ = shares_layers_ || std::ranges::any_of(kSharedLayers, [&](auto module) {
                       return name.find(module) != std::string_view::npos;
                     });
    if (may_be_tied_embedding(name) || name.ends_with("embeddings.weight")) {
      if (const auto head = output_head_of(config.architecture(), name)) {
        knows_class_ = true;
        if (!head->weight.empty()) class_heads_.insert(head->weight);
      }
    }
    if (!name.ends_with(kBias)) continue;
    const std::string weight = weight_beside(name);
    const std::string other = shared_bias_of(name);
    const bool is_of_head = is_output_head(weight) || !other.empty();
    const bool has_weight =
        known.contains(weight) || (!other.empty() && known.contains(weight_beside(other)));
    fills_other_ = fills_other_ || (is_of_head && !has_weight);
  }
  const bool shares = config.has_model_type(kSharing);
  missing_ = names_without_tensor(names, shares);
  shares_unknown_ = !shares && names_without_tensor(names, true).size() > missing_.size();
}

/// The head of a model within the model ties an embedding within it, too. The plain model at the
/// top, whose head is at the top, is called model.
bool TiedHeads::is_beside(std::string_view embedding, std::string_view module) const {
  if (embedding.starts_with("model.")) return module.empty();
  const std::string_view own_name = config_.flags_of(embedding).own_name;
  return embedding.substr(0, embedding.size() - own_name.size()) == module;
}

bool TiedHeads::is_head_of_class(std::string_view head, const TieFlags& flags) const {
  if (knows_class_) return class_heads_.contains(std::string(head));
  if (fills_other_) return false;
  const std::string_view own_name = flags.own_name;
  if (own_name == kLmHead &&
      std::ranges::find(kWithoutLmHead, flags.model_type) != kWithoutLmHead.end())
    return false;
  const std::string_view module = head.substr(0, head.size() - own_name.size());
  return std::ranges::any_of(kPairs, [&](const Pair& pair) {
    return own_name == pair.head && std::ranges::any_of(embeddings_, [&](std::string_view name) {
             return (pair.embedding.empty() || ends_in_part(name, pair.embedding)) &&
                    is_beside(name, module);
           });
  });
}

HeadTie TiedHeads::tie_of(std::string_view head) const {
  const TieFlags flags = config_.flags_of(head);
  if (!flags.may_tie() || !is_head_of_class(head, flags)) return HeadTie::kNone;
  const bool do_more = flags.do_more || shares_unknown_ || shares_layers_;
  return do_more ? HeadTie::kKept : HeadTie::kGivenUp;
}

}  // namespace evalcar::checkpoint
