// Which output heads of a checkpoint its configuration ties to an embedding, and what becomes of
// that where they differ.
//
// Names alone mislead: "output.weight" may be a layer of somebody's own, beside a head that is tied
// and therefore not in the files. Who gave up the tie then would leave that head random. So a head
// counts only if it is what the class calls its own or, where the class is not known, if it lies
// at the top of its part, is called as some class calls it whose embedding is called as one there,
// and no other head shows by its bias that its weight is filled by the tie.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/checkpoint/tie_config.h"
#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {

/// Of a head that differs from every embedding.
enum class HeadTie {
  kNone,     ///< it is not tied: nothing has to be said
  kGivenUp,  ///< the configuration ties it, and must not
  kKept,     ///< the same, but its flags cannot be given up without other weights' loss
};

/// Refers to the configuration and to the names, which outlive it.
class TiedHeads {
 public:
  /// `names`: of all tensors of the files.
  TiedHeads(const TieConfig& config, std::span<const std::string_view> names);

  HeadTie tie_of(std::string_view head) const;
  /// Names that get a tensor of their own where a head is kGivenUp: those of tied_names.h that this
  /// class has.
  const std::vector<TiedName>& missing() const { return missing_; }

 private:
  bool is_beside(std::string_view embedding, std::string_view module) const;
  bool is_head_of_class(std::string_view head, const TieFlags& flags) const;

  const TieConfig& config_;
  std::vector<std::string_view> embeddings_;
  std::set<std::string> class_heads_;
  bool knows_class_ = false;
  bool fills_other_ = false;  ///< a head is filled by the tie: its bias alone is there
  /// Encoder and decoder may share an embedding, which is not known of this class.
  bool shares_unknown_ = false;
  bool shares_layers_ = false;
  std::vector<TiedName> missing_;
};

}  // namespace evalcar::checkpoint
