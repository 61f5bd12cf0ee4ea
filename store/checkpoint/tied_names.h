// The names of input embeddings and output heads in the families that transformers knows.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace evalcar::checkpoint {

/// "model.embed_tokens.weight", "transformer.word_embeddings.weight", "gpt_neox.embed_in.weight", …
bool is_input_embedding(std::string_view tensor);

/// "lm_head.weight", "language_model.lm_head.weight", "embed_out.weight"; "output.weight" only at
/// the top or directly in a module that holds a text model. Whether it is the head that a model
/// ties says its class (tied_heads.h).
bool is_output_head(std::string_view tensor);

/// That, or what a class of known_ties.h calls its head.
bool may_be_output_head(std::string_view tensor);

/// An embedding that encoder, decoder and head share: "shared.weight" of T5 and BART, …
bool is_shared_embedding(std::string_view tensor);

/// An embedding of the few families that call it otherwise: Mamba, XLNet, CTR, XLM, …
bool is_rare_embedding(std::string_view tensor);

/// Any of these, or what such a class calls so: what an output head may be tied to.
bool may_be_tied_embedding(std::string_view tensor);

/// The other name of a bias that two modules of a head share ("cls.predictions.bias" and
/// "cls.predictions.decoder.bias", RoBERTa's alike), of which files hold one; "" for other tensors.
std::string shared_bias_of(std::string_view tensor);

/// What a class of transformers has as its output head.
struct OutputHead {
  std::string weight;  ///< "": it has none
  /// A bias of the head that is one parameter with `bias_source` as long as the head is tied; ""
  /// where there is no bias, or one of its own.
  std::string bias;
  std::string bias_source;
};

/// The head of the class (`architectures` of config.json) whose files call the input embedding so,
/// by known_ties.h; of a class that is not listed, by what it is called. Absent where it is not
/// known.
std::optional<OutputHead> output_head_of(std::string_view architecture, std::string_view embedding);

}  // namespace evalcar::checkpoint
