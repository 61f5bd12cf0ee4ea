// Cutting normalised text into the pieces within which byte-pair merging happens: tokenizer.json's
// "pre_tokenizer" (Sequence, Split, ByteLevel, Digits, Metaspace).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evaluator/text/metaspace.h"
#include "evaluator/text/regex.h"
#include "store/base/result.h"

namespace evalcar::text {

/// The patterns of widespread tokenizers, which have a scanner of their own: a pass over the text
/// without backtracking, several times faster than PCRE2 with the classes written out.
enum class KnownPattern {
  kGpt2,    ///< also ByteLevel's own
  kQwen2,   ///< numbers cut into single digits
  kLlama3,  ///< numbers cut into at most three digits
};
/// The pattern's text, as it stands in tokenizer.json.
std::string_view known_pattern_text(KnownPattern pattern);
/// The end of the piece that begins at `begin` (< text.size()): every piece is a match.
std::size_t scan_piece(KnownPattern pattern, std::string_view text, std::size_t begin);

/// Immutable after parse; thread-safe.
class PreTokenizer {
 public:
  /// From tokenizer.json's "pre_tokenizer". kUnsupported names the type that is not known.
  static Result<PreTokenizer> parse(const nlohmann::json& description);

  /// The pieces of `text` (valid UTF-8, without added tokens), none of them empty. `is_begin`:
  /// nothing stands before it in the whole text.
  Result<std::vector<std::string>> split(std::string_view text, bool is_begin) const;

  /// Whether the model spells the pieces in GPT-2's letters for bytes.
  bool is_byte_level() const { return byte_level_; }
  /// Whether split() makes something of `is_begin`.
  bool asks_for_begin() const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Scan {
    KnownPattern pattern;
  };
  struct Cut {
    Regex regex;
    Behavior behavior;
    bool invert;
  };
  struct Digits {
    bool individual;
  };
  struct PrefixSpace {};
  using Step = std::variant<Scan, Cut, Digits, PrefixSpace, Metaspace>;

  Status add(const nlohmann::json& description);
  Status add_split(const nlohmann::json& description);
  Status add_metaspace(const nlohmann::json& description);
  /// `is_begin`: whether the piece begins the whole text; in the end, whether what was added first
  /// does.
  static Status apply(const Step& step, std::string piece, bool& is_begin,
                      std::vector<std::string>& out);
  static Status apply_cut(const Cut& cut, std::string_view piece, bool& is_begin,
                          std::vector<std::string>& out);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace evalcar::text
