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
  /// kUnsupported names the type that is not known.
  static Result<Normalizer> parse(const nlohmann::json& description);

  /// Of valid UTF-8. kInvalidArgument for what would grow beyond all bounds.
  Result<std::string> apply(std::string_view text) const;

  /// Whether what a text begins with may vanish.
  bool removes() const;

 private:
  struct Prefix {
    std::string text;
  };
  using Step = std::variant<NormalForm, Prefix, Replacement>;

  Status add(const nlohmann::json& description, int depth);

  std::vector<Step> steps_;
};

}  // namespace evalcar::text
