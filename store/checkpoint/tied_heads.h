// Which output heads of a checkpoint its configuration ties to an embedding, and what becomes of
// that where they differ.
//
// Names alone mislead: "output.weight" may be a layer of somebody's own, beside a head that is tied
// and therefore not in the files. Who gave up the tie then would leave that head random. So a tie
// is given up only for the head of a class that is known, or of a kind of model (`model_type`), and
// all else that it ties there gets a tensor of its own. What nobody knows is left as it is, and
// told.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/checkpoint/known_ties.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {

/// Of a head that differs from every embedding.
enum class HeadTie {
  kNone,     ///< it is not tied: nothing has to be said
  kGivenUp,  ///< the configuration ties it, and must not
  kKept,     ///< the same, but its flags cannot be given up without other weights' loss, or it is
             ///< not known whether they can
};

/// A name that a class has, too, for a tensor of the files, as long as its configuration ties.
struct TiedName {
  std::string name;
  std::size_t source = 0;  ///< index of the tensor
};

/// What a class ties, or where it is not known all that are of one kind together.
struct ListedTies {
  std::vector<KnownTie> ties;
  bool is_class = false;     ///< of the class itself
  bool ties_layers = false;  ///< one of them ties what is not listed, too
};
/// Of known_ties.h, by the class; where none is called so, by the kind. Empty: nobody knows it.
ListedTies listed_ties_of(std::string_view architecture, std::string_view model_type);

/// Refers to the configuration and to the names, which outlive it.
class TiedHeads {
 public:
  /// `names`: of all tensors of the files.
  TiedHeads(const TieConfig& config, std::span<const std::string_view> names);

  HeadTie tie_of(std::string_view head) const;
  /// Under which there is no tensor, but one is needed in a model whose ties are given up: a head's
  /// other bias, the embeddings of encoder and decoder that share one, LUKE's entities, ….
  std::vector<TiedName> missing() const;

 private:
  using Ties = ListedTies;
  bool has(std::string_view prefix, std::string_view name) const;
  bool has_module_of(const std::string& name) const;
  bool is_listed(const Ties& known, std::string_view prefix, std::string_view head) const;
  bool lacks_other_head(const Ties& known, std::string_view prefix, std::string_view head) const;
  bool is_called_as_some_head(const TieFlags& flags, std::string_view prefix) const;
  void add_missing(const Ties& known, const std::string& prefix,
                   std::map<std::string, std::size_t>& missing) const;

  const TieConfig& config_;
  std::map<std::string_view, std::size_t> names_;
  Ties whole_;
};

}  // namespace evalcar::checkpoint
