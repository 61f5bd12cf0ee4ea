// The expression half of the parser: a recursive descent over the tokens, one function per level of
// precedence, loosest first. Errors are sticky: the first one is kept, and every function returns
// at once after it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evaluator/text/jinja_ast.h"
#include "evaluator/text/jinja_lexer.h"
#include "store/base/result.h"

namespace evalcar::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// An expression with "x if y else z"; `with_condition` off leaves an "if" alone.
  ExpressionPtr expression(bool with_condition = true);
  /// One expression, or several with commas: a tuple.
  ExpressionPtr tuple(bool with_condition = true);
  /// "| filter…" behind what is there; `input` may be null.
  ExpressionPtr filters(ExpressionPtr input, bool first_without_pipe = false);

 protected:
  bool failed() const { return error_.has_value(); }
  ExpressionPtr fail(ErrorCode code, const std::string& message);
  ExpressionPtr unexpected(const std::string& expected);
  const Token& peek(std::size_t ahead = 0) const;
  Token take();
  bool take_operator(std::string_view value);
  bool take_name(std::string_view value);
  void expect_operator(std::string_view value);
  bool at_block_end() const { return peek().type == TokenType::kBlockEnd; }

  std::optional<Error> error_;
  /// Names that were read since: for the macro that is being parsed.
  std::vector<std::string> names_seen_;

 private:
  ExpressionPtr make(Expression::Kind kind, std::string text = {});
  ExpressionPtr or_level();
  ExpressionPtr and_level();
  ExpressionPtr not_level();
  ExpressionPtr compare_level();
  ExpressionPtr sum_level();
  ExpressionPtr concatenate_level();
  ExpressionPtr product_level();
  ExpressionPtr power_level();
  ExpressionPtr unary_level(bool with_filters = true);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr number();
  ExpressionPtr bracketed();
  /// From "[" or "{" to `close`: a list's values, or a dict's keys and values by turns.
  ExpressionPtr collection(Expression::Kind kind, std::string_view close);
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters_and_tests(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr slice(ExpressionPtr node, ExpressionPtr start);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);
  void call_arguments(Expression& call);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int nodes_ = 0;
};

}  // namespace evalcar::text::jinja
