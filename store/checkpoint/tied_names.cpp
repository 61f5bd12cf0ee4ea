#include "store/checkpoint/tied_names.h"

#include <algorithm>
#include <array>
#include <map>

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

/// Heads of these have a bias, but one alone: ESM, LXMERT.
constexpr std::array<std::string_view, 2> kOneBias = {"esm.embeddings.word_embeddings.weight",
                                                      "lxmert.embeddings.word_embeddings.weight"};

/// What is tied beside the head and cannot be told from it, by the names of its tensors.
struct FurtherTie {
  std::string_view name;
  std::string_view source;
};
constexpr std::array<FurtherTie, 4> kFurtherTies = {{
    {"entity_predictions.decoder.weight", "luke.entity_embeddings.entity_embeddings.weight"},
    {"lm_head.additional_fc.weight", "model.embed_tokens.additional_embedding.weight"},  // Idefics
    {"t2u_model.lm_head.weight", "t2u_model.model.decoder.embed_tokens.weight"},  // SeamlessM4T
    {"unembedding_projection.weight", "model.embed_tokens.embedding_projection.weight"},  // NeoMME
}};
/// Modules beside an embedding that they share, each with one of its own name.
constexpr std::array<std::string_view, 4> kSharing = {"encoder", "decoder", "text_encoder",
                                                      "text_decoder"};

/// A class whose head is not called lm_head, or whose embedding does not tell it.
struct KnownHead {
  std::string_view architecture;
  std::string_view embedding;
  std::string_view layer;
  std::string_view bias_source;  ///< "": the layer has no bias, or its own
};
constexpr std::string_view kOfBert = "bert.embeddings.word_embeddings.weight";
constexpr std::string_view kOfRoberta = "roberta.embeddings.word_embeddings.weight";
constexpr std::string_view kOfDistilBert = "distilbert.embeddings.word_embeddings.weight";
constexpr std::string_view kOfDecoder = "model.decoder.embed_tokens.weight";
constexpr std::array<KnownHead, 12> kKnownHeads = {{
    {"BertForMaskedLM", kOfBert, "cls.predictions.decoder", "cls.predictions.bias"},
    {"BertForPreTraining", kOfBert, "cls.predictions.decoder", "cls.predictions.bias"},
    {"BertLMHeadModel", kOfBert, "cls.predictions.decoder", "cls.predictions.bias"},
    {"RobertaForMaskedLM", kOfRoberta, "lm_head.decoder", "lm_head.bias"},
    {"RobertaForCausalLM", kOfRoberta, "lm_head.decoder", "lm_head.bias"},
    {"XLMRobertaForMaskedLM", kOfRoberta, "lm_head.decoder", "lm_head.bias"},
    {"XLMRobertaForCausalLM", kOfRoberta, "lm_head.decoder", "lm_head.bias"},
    {"CamembertForMaskedLM", kOfRoberta, "lm_head.decoder", "lm_head.bias"},
    {"CamembertForCausalLM", kOfRoberta, "lm_head.decoder", "lm_head.bias"},
    {"DistilBertForMaskedLM", kOfDistilBert, "vocab_projector", ""},
    {"WhisperForConditionalGeneration", kOfDecoder, "proj_out", ""},
    {"OPTForCausalLM", kOfDecoder, "lm_head", ""},
}};
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
constexpr std::string_view kDecoderWeight = ".decoder.weight";

bool ends_in_part(std::string_view name, std::string_view part) {
  return name == part || (name.size() > part.size() && name.ends_with(part) &&
                          name[name.size() - part.size() - 1] == '.');
}

bool ends_in_any(std::string_view name, std::span<const std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return ends_in_part(name, part); });
}

/// Of an embedding that modules beside it share: the module around them, with its dot, and what
/// theirs is called; else "" and "".
struct SharedByModules {
  std::string_view around;
  std::string_view own;
};
SharedByModules shared_by_modules(std::string_view tensor) {
  constexpr std::string_view kShared = "shared.weight";
  constexpr std::string_view kWords = "word_embeddings.weight";
  if (is_shared_embedding(tensor))
    return {tensor.substr(0, tensor.size() - kShared.size()), "embed_tokens.weight"};
  if (tensor == "prophetnet.word_embeddings.weight")
    return {tensor.substr(0, tensor.size() - kWords.size()), kWords};
  return {};
}

}  // namespace

bool is_input_embedding(std::string_view tensor) { return ends_in_any(tensor, kEmbeddings); }

bool is_output_head(std::string_view tensor) {
  // "output.weight" within a layer is another thing.
  return ends_in_any(tensor, kHeads) ||
         std::find(kWholeHeads.begin(), kWholeHeads.end(), tensor) != kWholeHeads.end() ||
         shared_name(tensor) == "output.weight" ||
         shared_name(tensor) == "proj_out.weight";  // Whisper
}

bool is_shared_embedding(std::string_view tensor) {
  // In a layer it is another thing.
  const bool in_layer = tensor.find_first_of("0123456789") != std::string_view::npos;
  return !in_layer && ends_in_part(tensor, "shared.weight");
}

bool is_rare_embedding(std::string_view tensor) { return ends_in_any(tensor, kRareEmbeddings); }

bool may_be_tied_embedding(std::string_view tensor) {
  return is_input_embedding(tensor) || is_shared_embedding(tensor) || is_rare_embedding(tensor);
}

std::vector<TiedName> names_without_tensor(std::span<const std::string_view> names, bool shares) {
  std::map<std::string_view, std::size_t> known;
  for (std::size_t i = 0; i < names.size(); ++i) known.emplace(names[i], i);
  std::map<std::string, std::size_t> missing;
  const auto want = [&](std::string name, std::string_view source) {
    const auto found = known.find(source);
    if (found != known.end() && !known.contains(name))
      missing.emplace(std::move(name), found->second);
  };
  const bool one_bias = std::any_of(kOneBias.begin(), kOneBias.end(),
                                    [&](std::string_view name) { return known.contains(name); });
  const auto has_module = [&](const std::string& module) {
    const auto first = known.lower_bound(module + ".");
    return first != known.end() && first->first.starts_with(module + ".");
  };
  for (const std::string_view name : names) {
    if (name.ends_with(kDecoderWeight) && is_output_head(name) && !one_bias) {
      const std::string bias =
          std::string(name.substr(0, name.size() - kWeight.size())) + std::string(kBias);
      const std::string other = shared_bias_of(bias);
      if (!other.empty()) {
        want(bias, other);
        want(other, bias);
      }
    }
    if (!shares) continue;
    const auto [around, own] = shared_by_modules(name);
    for (const std::string_view part : kSharing) {
      const std::string module = std::string(around) + std::string(part);
      if (!own.empty() && has_module(module)) want(module + "." + std::string(own), name);
    }
  }
  for (const FurtherTie& tie : kFurtherTies) want(std::string(tie.name), tie.source);
  std::vector<TiedName> found;
  for (const auto& [name, source] : missing) found.push_back({name, source});
  return found;
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
    return std::any_of(classes.begin(), classes.end(),
                       [&](std::string_view end) { return architecture.ends_with(end); });
  };
  const auto is_one_of = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), embedding) != names.end();
  };
  for (const KnownHead& known : kKnownHeads) {
    if (architecture != known.architecture || embedding != known.embedding) continue;
    const std::string layer(known.layer);
    if (known.bias_source.empty()) return OutputHead{layer + ".weight", "", ""};
    return OutputHead{layer + ".weight", layer + ".bias", std::string(known.bias_source)};
  }
  if (is_of(kWithoutHead)) return OutputHead{};
  if (is_of(kGenerating)) {
    if (is_one_of(kBesideLmHead)) return OutputHead{"lm_head.weight", "", ""};
    // LLaVA and its like before transformers 4.52 hold a whole model of text.
    if (embedding == "language_model.model.embed_tokens.weight")
      return OutputHead{"language_model.lm_head.weight", "", ""};
    return std::nullopt;
  }
  if (architecture.ends_with("Model") && is_one_of(kOfPlainModel)) return OutputHead{};
  return std::nullopt;
}

}  // namespace evalcar::checkpoint
