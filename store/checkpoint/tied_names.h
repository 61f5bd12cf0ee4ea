// The names of input embeddings and output heads in the families that transformers knows.
#pragma once

#include <string_view>

namespace evalcar::checkpoint {

/// "model.embed_tokens.weight", "transformer.word_embeddings.weight", "gpt_neox.embed_in.weight", …
bool is_input_embedding(std::string_view tensor);

/// "lm_head.weight", "language_model.lm_head.weight", "embed_out.weight"; "output.weight" only at
/// the top or directly in a module that holds a text model.
bool is_output_head(std::string_view tensor);

}  // namespace evalcar::checkpoint
