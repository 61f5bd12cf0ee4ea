// Which weights of an adapter's base model are one: the input embedding and the output head.
//
// PEFT changes the modules of a model in memory, where tied weights are one parameter. So an update
// of either changes both, one after the other where there are two of them; and a module that
// modules_to_save names is a copy from then on: it alone is replaced, the other keeps the base's
// values (peft 0.21, merge_and_unload).
#pragma once

#include <optional>
#include <string>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/plan.h"
#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {

/// What config.json says of it, by the flags that tie the plan's weights (tie_config.h).
struct BaseTies {
  bool tied = false;         ///< tie_word_embeddings is true
  bool untied = false;       ///< it is false, and nowhere true
  std::string architecture;  ///< the first of its `architectures`; "" where it names none
  std::string model_type;    ///< "" where it says none
  /// The model has an output head, also where `architecture` has none: an adapter of a language
  /// model over a base that was published without one.
  bool has_head = false;
};

/// No config.json says nothing.
Result<BaseTies> read_base_ties(const FileSystem& files, const Folder& base, const Plan& plan);

struct TiedWeights {
  std::size_t embedding = 0;        ///< index in the plan
  std::optional<std::size_t> head;  ///< absent: the files hold the embedding alone
  /// The head by its class; absent where the class is not known.
  std::optional<OutputHead> of_class;
};

/// Absent: nothing is tied. kUnsupported: it cannot be told what is.
Result<std::optional<TiedWeights>> find_tied_weights(const Plan& base, const BaseTies& ties);

/// kUnsupported where the bytes of the two differ, which are of one shape and dtype: what the
/// configuration ties and the files do not, versions of transformers load as two or as one.
Status check_equal(const FileSystem& files, const Plan& plan, std::size_t embedding,
                   std::size_t head);

/// Why `weight`, which is tied to others than one embedding and one head that are known by their
/// names, cannot be changed, in words that follow
/// its name; empty where it can, or is another tensor. `is_copy`: the adapter has a copy of it.
std::string untold_ties(const Plan& base, const BaseTies& ties, const std::string& weight,
                        bool is_copy);

}  // namespace evalcar::checkpoint
