// What the classes of transformers tie to their word embeddings.
//
// The names are those of files, of the module in memory and of what save_pretrained writes of it.
// Reference: transformers 5.17, `_tied_weights_keys`, and get_output_embeddings(), which releases
// before 5 tie to get_input_embeddings() whether a class lists it or not. The table is written by
// tests/fixtures/make_known_ties.py, which asks the classes themselves.
#pragma once

#include <span>
#include <string_view>

namespace evalcar::checkpoint {

/// Two names of one weight, as long as the configuration ties.
struct KnownTie {
  bool is_head = false;  ///< `one` is an output head, `other` an embedding
  std::string_view one;
  std::string_view other;
};

struct ClassTies {
  std::string_view model_type;
  std::string_view architecture;
  std::span<const KnownTie> ties;  ///< at least one is of a head
  /// Further ones depend on how many layers the model has: they are not listed.
  bool ties_layers = false;
};

/// Each class that has an output head which may be tied.
std::span<const ClassTies> known_ties();

}  // namespace evalcar::checkpoint
