// The names of input embeddings and output heads in the families that transformers knows.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::checkpoint {

/// "model.embed_tokens.weight", "transformer.word_embeddings.weight", "gpt_neox.embed_in.weight", …
bool is_input_embedding(std::string_view tensor);

/// "lm_head.weight", "language_model.lm_head.weight", "embed_out.weight"; "output.weight" only at
/// the top or directly in a module that holds a text model.
bool is_output_head(std::string_view tensor);

/// An embedding that encoder, decoder and head share: "shared.weight" of T5 and BART, …
bool is_shared_embedding(std::string_view tensor);

/// An embedding of the few families that call it otherwise: Mamba, XLNet, CTR, XLM, …
bool is_rare_embedding(std::string_view tensor);

/// Any of these: what an output head may be tied to.
bool may_be_tied_embedding(std::string_view tensor);

/// A name that a class has, too, for a tensor of the files, as long as its configuration ties.
struct TiedName {
  std::string name;
  std::size_t source = 0;  ///< index of the tensor
};

/// Those under which there is no tensor, but may be one in a model whose ties are given up: a
/// head's other bias, the embeddings of encoder and decoder that share one, LUKE's entities, ….
/// `names`: of all tensors of the files. `shares`: encoder and decoder of this class share an
/// embedding.
std::vector<TiedName> names_without_tensor(std::span<const std::string_view> names, bool shares);

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

/// The head of the class (`architectures` of config.json) whose files call the input embedding so.
/// Absent where it is not known. Reference: `_tied_weights_keys` of transformers 5.17.
std::optional<OutputHead> output_head_of(std::string_view architecture, std::string_view embedding);

}  // namespace evalcar::checkpoint
