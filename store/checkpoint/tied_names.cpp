#include "store/checkpoint/tied_names.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_set>

#include "store/checkpoint/known_ties.h"
#include "store/checkpoint/lora_names.h"

namespace evalcar::checkpoint {
namespace {

// BLOOM, Falcon: word_embeddings; GPT-NeoX: embed_in, embed_out; InternLM2, torchtitan:
// tok_embeddings, output.
constexpr std::array<std::string_view, 5> kEmbeddings = {
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight",
    "tok_embeddings.weight"};
constexpr std::array<std::string_view, 9> kHeads = {
    "lm_head.weight",
    "embed_out.weight",
    "lm_head.decoder.weight",      // RoBERTa, MPNet, Longformer
    "predictions.decoder.weight",  // BERT, ALBERT, DeBERTa, MobileBERT
    "generator_lm_head.weight",    // ELECTRA
    "vocab_projector.weight",      // DistilBERT
    "pred_layer.proj.weight",      // XLM, FlauBERT
    "lm_head.out_proj.weight",     // T5Gemma
    "lm_loss.weight"};             // XLNet
/// Heads where the whole name is this: within other modules it is another thing.
constexpr std::array<std::string_view, 3> kWholeHeads = {
    "decoder.weight",                                                 // ModernBERT
    "output_projection.weight", "decoder.output_projection.weight"};  // BioGPT, TrOCR

// Mamba, RWKV, XLM and FlauBERT, CTR, XLNet, OpenAI-GPT.
constexpr std::array<std::string_view, 6> kRareEmbeddings = {
    "backbone.embeddings.weight",        "rwkv.embeddings.weight",
    "transformer.embeddings.weight",     "transformer.w.weight",
    "transformer.word_embedding.weight", "tokens_embed.weight"};

/// Embeddings of the classes that end so, whose head is lm_head: of a model of text, and of one of
/// text with pictures or sound.
constexpr std::array<std::string_view, 3> kGenerating = {"ForCausalLM", "LMHeadModel",
                                                         "ForConditionalGeneration"};
constexpr std::array<std::string_view, 8> kBesideLmHead = {
    "model.embed_tokens.weight", "model.language_model.embed_tokens.weight",
    "model.text_model.embed_tokens.weight",  // Idefics2, Idefics3, SmolVLM
    "transformer.wte.weight", "transformer.word_embeddings.weight",
    // As files on the hub have them that a model without a head wrote.
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight"};
constexpr std::array<std::string_view, 5> kWithoutHead = {
    "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
    "ForMultipleChoice", "ForNextSentencePrediction"};
/// Of a plain model ("BertModel"), which alone has its embedding under no further name.
constexpr std::array<std::string_view, 4> kOfPlainModel = {"embed_tokens.weight", "wte.weight",
                                                           "word_embeddings.weight",
                                                           "embeddings.word_embeddings.weight"};

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";

bool ends_in_part(std::string_view name, std::string_view part) {
  return name == part || (name.size() > part.size() && name.ends_with(part) &&
                          name[name.size() - part.size() - 1] == '.');
}

bool ends_in_any(std::string_view name, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts,
                             [&](std::string_view part) { return ends_in_part(name, part); });
}

bool is_any_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// A weight's bias.
std::string bias_beside(std::string_view weight) {
  return std::string(weight.substr(0, weight.size() - kWeight.size())) + std::string(kBias);
}

struct ListedNames {
  std::unordered_set<std::string_view> heads;
  std::unordered_set<std::string_view> embeddings;
};

const ListedNames& listed_names() {
  static const ListedNames kNames = [] {
    ListedNames names;
    for (const ClassTies& listed : known_ties()) {
      for (const KnownTie& tie : listed.ties) {
        if (!tie.is_head) continue;
        names.heads.insert(tie.one);
        names.embeddings.insert(tie.other);
      }
    }
    return names;
  }();
  return kNames;
}

bool has_lm_head(const ClassTies& listed) {
  return std::ranges::any_of(listed.ties,
                             [](const KnownTie& tie) { return tie.one == "lm_head.weight"; });
}

/// Absent where the class has no one head beside this embedding.
std::optional<OutputHead> listed_head_of(const ClassTies& listed, std::string_view embedding) {
  std::optional<OutputHead> found;
  for (const KnownTie& tie : listed.ties) {
    if (!tie.is_head || tie.other != embedding) continue;
    if (found) return std::nullopt;
    found = OutputHead{std::string(tie.one), "", ""};
  }
  if (!found) return std::nullopt;
  const std::string bias = bias_beside(found->weight);
  for (const KnownTie& tie : listed.ties) {
    if (tie.is_head || (tie.one != bias && tie.other != bias)) continue;
    found->bias = bias;
    found->bias_source = tie.one == bias ? tie.other : tie.one;
  }
  return found;
}

}  // namespace

bool is_input_embedding(std::string_view tensor) { return ends_in_any(tensor, kEmbeddings); }

bool is_output_head(std::string_view tensor) {
  // "output.weight" within a layer is another thing.
  return ends_in_any(tensor, kHeads) || is_any_of(tensor, kWholeHeads) ||
         shared_name(tensor) == "output.weight" ||
         shared_name(tensor) == "proj_out.weight";  // Whisper
}

bool may_be_output_head(std::string_view tensor) {
  return is_output_head(tensor) || listed_names().heads.contains(tensor);
}

bool is_shared_embedding(std::string_view tensor) {
  // In a layer it is another thing.
  const bool in_layer = tensor.find_first_of("0123456789") != std::string_view::npos;
  return !in_layer && ends_in_part(tensor, "shared.weight");
}

bool is_rare_embedding(std::string_view tensor) { return ends_in_any(tensor, kRareEmbeddings); }

bool may_be_tied_embedding(std::string_view tensor) {
  return is_input_embedding(tensor) || is_shared_embedding(tensor) || is_rare_embedding(tensor) ||
         listed_names().embeddings.contains(tensor);
}

std::string shared_bias_of(std::string_view tensor) {
  constexpr std::string_view kLayer = ".decoder";
  if (!tensor.ends_with(kBias)) return {};
  std::string module(tensor.substr(0, tensor.size() - kBias.size()));
  const bool of_layer = module.ends_with(kLayer);
  if (of_layer) module.resize(module.size() - kLayer.size());
  const std::string layer = module + std::string(kLayer);
  if (!is_output_head(layer + std::string(kWeight))) return {};
  return (of_layer ? module : layer) + std::string(kBias);
}

std::optional<OutputHead> output_head_of(std::string_view architecture,
                                         std::string_view embedding) {
  const auto is_of = [&](std::span<const std::string_view> classes) {
    return std::ranges::any_of(classes,
                               [&](std::string_view end) { return architecture.ends_with(end); });
  };
  const auto listed = std::ranges::find(known_ties(), architecture, &ClassTies::architecture);
  if (listed != known_ties().end()) {
    if (auto head = listed_head_of(*listed, embedding)) return head;
    if (!has_lm_head(*listed)) return std::nullopt;
  }
  if (is_of(kWithoutHead)) return OutputHead{};
  if (is_of(kGenerating)) {
    if (is_any_of(embedding, kBesideLmHead)) return OutputHead{"lm_head.weight", "", ""};
    // LLaVA and its like before transformers 4.52 hold a whole model of text.
    if (embedding == "language_model.model.embed_tokens.weight")
      return OutputHead{"language_model.lm_head.weight", "", ""};
    return std::nullopt;
  }
  if (architecture.ends_with("Model") && is_any_of(embedding, kOfPlainModel)) return OutputHead{};
  return std::nullopt;
}

}  // namespace evalcar::checkpoint
