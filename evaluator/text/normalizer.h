// What tokenizer.json's "normalizer" makes of a text before it is cut into pieces (Sequence, NFC,
// NFD, Prepend, Replace).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evaluator/text/replacement.h"
#include "evaluator/text/unicode.h"
#include "store/base/result.h"

namespace evalcar::text {

/// Immutable after parse; thread-safe.
class Normalizer {
 public:
  /// kUnsupported names the type that is not known, or says that a text would grow by too much.
  static Result<Normalizer> parse(const nlohmann::json& description);

  /// Of valid UTF-8; at most kMostGrowth times as long, and some bytes. Errors as Replacement's.
  Result<std::string> apply(std::string_view text) const;

  bool is_empty() const { return steps_.empty(); }

 private:
  struct Prefix {
    std::string text;
  };
  using Step = std::variant<NormalForm, Prefix, Replacement>;

  Status add(const nlohmann::json& description);

  std::vector<Step> steps_;
  std::size_t growth_ = 1;
  std::size_t prefix_bytes_ = 0;  ///< before they grow
};

}  // namespace evalcar::text
