// Cuts a chat template into tokens as Jinja2 does in transformers' environment: trim_blocks and
// lstrip_blocks on, one newline at the end of the source dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"

namespace evalcar::text::jinja {

enum class TokenType {
  kData,  ///< text to be put out as it is
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  ///< its value, escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  int line = 1;

  bool is(TokenType wanted, std::string_view value) const {
    return type == wanted && text == value;
  }
  bool is_operator(std::string_view value) const { return is(TokenType::kOperator, value); }
  bool is_name(std::string_view value) const { return is(TokenType::kName, value); }
};

/// The tokens of the source, a kEnd last. kCorruption "line N: …" for what is no template.
Result<std::vector<Token>> tokenize(std::string_view source);

/// str.isspace() of Python: White_Space and U+001C … U+001F.
bool is_python_space(char32_t code_point);

}  // namespace evalcar::text::jinja
