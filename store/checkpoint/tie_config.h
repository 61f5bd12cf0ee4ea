// What a config.json says of tied weights: which of its flags ties which output head, and whether
// that flag means something else, too.
//
// Each part of a model (text_config, decoder, thinker_config) may have a flag of its own.
// transformers 5 asks the flag of the module whose class lists the tie (`_tied_weights_keys`): the
// whole model's for a head at the top, the part's for a model within the model; transformers 4 asks
// the part of the text (`get_text_config`). Both are flags of the head; those of other parts tie
// other tensors. Reference: transformers 4.57 and 5.17.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"

namespace evalcar::checkpoint {

/// How deep a config.json may be nested, as wherever one is read.
constexpr std::size_t kMaxConfigDepth = 256;
/// Of parts within parts: more than any model has.
constexpr std::size_t kMaxPartDepth = 3;
/// What is longer or more is looked at no further: it may be said of many parts in few bytes.
constexpr std::size_t kLongestPartName = 100;
constexpr std::size_t kMostConfigParts = 10'000;

/// The flag, and what LFM2 calls it, which transformers takes first.
constexpr std::string_view kTieKey = "tie_word_embeddings";
constexpr std::string_view kOtherTieKey = "tie_embedding";

/// One flag, of a part or of the whole model.
struct TieFlag {
  std::vector<std::string> part;  ///< the keys that lead to the part; none: the whole model
  std::optional<bool> says;
  bool is_needed = false;  ///< where it says nothing, the class's default decides
};

/// The flags that tie one tensor.
struct TieFlags {
  std::vector<TieFlag> flags;  ///< at least one
  /// They cannot be given up, because they do more: in models of T5's kind they scale the decoder's
  /// output (and with transformers 5 untie nothing), in DiffusionGemma and T5Gemma 2 they tie
  /// encoder and decoder, in Zamba whole layers, in BLT an embedding to the head.
  bool do_more = false;
  /// The tensor's name within the part: "lm_head.weight" of "language_model.lm_head.weight".
  std::string_view own_name;
  std::string_view model_type;  ///< of the part; the configuration's

  bool said(bool what) const;
  /// One says so, or none says anything: the class's default may tie.
  bool may_tie() const { return said(true) || !said(false); }
};

class TieConfig {
 public:
  /// kCorruption where the text is no JSON.
  static Result<TieConfig> parse(std::string_view text, const std::string& where);

  /// The first of `architectures`; "" where there is none.
  const std::string& architecture() const { return architecture_; }
  /// Of the whole model; "" where it says none.
  std::string_view model_type() const;

  /// Of an output head, or an embedding, by where it lies in the model: "thinker.lm_head.weight" is
  /// tied by the flags of thinker_config and of its text_config. Where the part of a model of text
  /// is not found, or none of these says anything, but others say that they tie, the structure is
  /// not known, and any of them may tie it. The result refers to `tensor`.
  TieFlags flags_of(std::string_view tensor) const;

 private:
  using Path = std::vector<std::string>;
  struct Part {
    std::string model_type;
    std::optional<bool> ties;
  };
  class Scan;

  TieFlag flag_of(const Path& path, bool is_needed) const;

  std::string architecture_;
  std::map<Path, Part> parts_;
  std::vector<Path> tying_;  ///< the parts whose flag says so
};

}  // namespace evalcar::checkpoint
