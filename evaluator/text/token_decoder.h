// What tokenizer.json's "decoder" makes of tokens: text (Sequence, ByteLevel, Replace,
// ByteFallback, Fuse, Strip, Metaspace).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evaluator/text/metaspace.h"
#include "evaluator/text/replacement.h"
#include "store/base/result.h"

namespace evalcar::text {

/// Immutable after parse; thread-safe.
class TokenDecoder {
 public:
  /// kUnsupported names the type that is not known, or says that a text would grow by too much.
  static Result<TokenDecoder> parse(const nlohmann::json& description);

  /// The text of tokens as the vocabulary spells them.
  std::string decode(std::vector<std::string> tokens) const;

  /// Whether the tokens are spelled in GPT-2's letters for bytes.
  bool is_byte_level() const;
  /// Whether the token is a byte by name, which becomes a text together with those beside it.
  bool is_named_byte(std::string_view token) const;

 private:
  struct ByteLetters {};
  struct ByteFallback {};
  struct Fuse {};
  struct Strip {
    std::string content;  ///< one character
    std::size_t start;    ///< of them at most
    std::size_t stop;
  };
  using Step = std::variant<ByteLetters, ByteFallback, Fuse, Strip, Metaspace, Replacement>;

  Status add(const nlohmann::json& description);
  static std::vector<std::string> apply(const Step& step, std::vector<std::string> tokens);

  std::vector<Step> steps_;
  std::size_t growth_ = 1;
};

}  // namespace evalcar::text
