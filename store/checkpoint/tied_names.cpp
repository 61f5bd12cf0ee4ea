#include "store/checkpoint/tied_names.h"

#include <algorithm>
#include <array>
#include <span>

#include "store/checkpoint/lora_names.h"

namespace evalcar::checkpoint {
namespace {

// BLOOM, Falcon: word_embeddings; GPT-NeoX: embed_in, embed_out; InternLM2, torchtitan:
// tok_embeddings, output.
constexpr std::array<std::string_view, 5> kEmbeddings = {
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight",
    "tok_embeddings.weight"};
constexpr std::array<std::string_view, 7> kHeads = {
    "lm_head.weight",
    "embed_out.weight",
    "lm_head.decoder.weight",      // RoBERTa, MPNet, Longformer
    "predictions.decoder.weight",  // BERT, ALBERT, DeBERTa, MobileBERT
    "generator_lm_head.weight",    // ELECTRA
    "vocab_projector.weight",      // DistilBERT
    "pred_layer.proj.weight"};     // XLM, FlauBERT

bool ends_in_part(std::string_view name, std::string_view part) {
  return name == part || (name.size() > part.size() && name.ends_with(part) &&
                          name[name.size() - part.size() - 1] == '.');
}

bool ends_in_any(std::string_view name, std::span<const std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return ends_in_part(name, part); });
}

}  // namespace

bool is_input_embedding(std::string_view tensor) { return ends_in_any(tensor, kEmbeddings); }

bool is_output_head(std::string_view tensor) {
  // "output.weight" within a layer is another thing.
  return ends_in_any(tensor, kHeads) || shared_name(tensor) == "output.weight" ||
         shared_name(tensor) == "proj_out.weight";  // Whisper
}

}  // namespace evalcar::checkpoint
