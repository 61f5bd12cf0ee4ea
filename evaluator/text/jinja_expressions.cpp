#include "evaluator/text/jinja_expressions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "evaluator/text/jinja_parser.h"

namespace evalcar::text::jinja {
namespace {

using Kind = Expression::Kind;
constexpr int kMaxNesting = 60;  // of brackets, unary operators and "if … else …" chains
constexpr int kMaxNodes = 5000;  // of one outermost expression, so also its depth

std::string shown(const Token& token) {
  if (token.type == TokenType::kEnd) return "the end of the template";
  if (token.type == TokenType::kData) return "text";
  return "'" + token.text.substr(0, 40) + "'";
}

bool is_comparison(const Token& token) {
  constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  return token.type == TokenType::kOperator &&
         std::find(kOperators.begin(), kOperators.end(), token.text) != kOperators.end();
}

}  // namespace

ExpressionPtr ExpressionParser::make(Kind kind, std::string text) {
  if (++nodes_ > kMaxNodes && !error_)
    error_ = make_error(ErrorCode::kUnsupported,
                        "line " + std::to_string(peek().line) + ": an expression that is too long");
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = peek().line;
  node->text = std::move(text);
  return node;
}

// Always returns a node, so that nobody has to ask for null.
ExpressionPtr ExpressionParser::fail(ErrorCode code, const std::string& message) {
  if (!error_) error_ = make_error(code, "line " + std::to_string(peek().line) + ": " + message);
  at_ = tokens_.size() - 1;
  return make(Kind::kConstant);
}

ExpressionPtr ExpressionParser::unexpected(const std::string& expected) {
  return fail(ErrorCode::kCorruption, "unexpected " + shown(peek()) + "; expected " + expected);
}

const Token& ExpressionParser::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token ExpressionParser::take() {
  Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::take_operator(std::string_view value) {
  if (!peek().is_operator(value)) return false;
  take();
  return true;
}

bool ExpressionParser::take_name(std::string_view value) {
  if (!peek().is_name(value)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view value) {
  if (!failed() && !take_operator(value)) unexpected("'" + std::string(value) + "'");
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  if (depth_ == 0) nodes_ = 0;
  if (++depth_ > kMaxNesting) {
    --depth_;
    return fail(ErrorCode::kUnsupported, "an expression nested too deep");
  }
  ExpressionPtr node = or_level();
  while (with_condition && !failed() && peek().is_name("if")) {
    ExpressionPtr condition = make(Kind::kCondition);
    take();
    condition->children.push_back(or_level());
    condition->children.push_back(std::move(node));
    condition->children.push_back(take_name("else") ? expression() : nullptr);
    node = std::move(condition);
  }
  --depth_;
  return node;
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  ExpressionPtr first = expression(with_condition);
  if (!peek().is_operator(",")) return first;
  ExpressionPtr node = make(Kind::kTuple);
  node->children.push_back(std::move(first));
  while (!failed() && take_operator(",")) {
    const Token& next = peek();
    if (next.type == TokenType::kVariableEnd || next.type == TokenType::kBlockEnd ||
        next.is_operator(")") || next.is_operator("]"))
      break;
    node->children.push_back(expression(with_condition));
  }
  return node;
}

ExpressionPtr ExpressionParser::or_level() {
  ExpressionPtr node = and_level();
  while (!failed() && peek().is_name("or")) {
    ExpressionPtr both = make(Kind::kOr);
    take();
    both->children.push_back(std::move(node));
    both->children.push_back(and_level());
    node = std::move(both);
  }
  return node;
}

ExpressionPtr ExpressionParser::and_level() {
  ExpressionPtr node = not_level();
  while (!failed() && peek().is_name("and")) {
    ExpressionPtr both = make(Kind::kAnd);
    take();
    both->children.push_back(std::move(node));
    both->children.push_back(not_level());
    node = std::move(both);
  }
  return node;
}

ExpressionPtr ExpressionParser::not_level() {
  if (!peek().is_name("not")) return compare_level();
  if (++depth_ > kMaxNesting) {
    --depth_;
    return fail(ErrorCode::kUnsupported, "an expression nested too deep");
  }
  ExpressionPtr node = make(Kind::kNot);
  take();
  node->children.push_back(not_level());
  --depth_;
  return node;
}

ExpressionPtr ExpressionParser::compare_level() {
  ExpressionPtr node = sum_level();
  ExpressionPtr chain;
  while (!failed()) {
    std::string op;
    if (is_comparison(peek())) {
      op = take().text;
    } else if (take_name("in")) {
      op = "in";
    } else if (peek().is_name("not") && peek(1).is_name("in")) {
      take();
      take();
      op = "not in";
    } else {
      break;
    }
    if (!chain) {
      chain = make(Kind::kCompare);
      chain->children.push_back(std::move(node));
    }
    chain->operators.push_back(std::move(op));
    chain->children.push_back(sum_level());
  }
  return chain ? std::move(chain) : std::move(node);
}

ExpressionPtr ExpressionParser::sum_level() {
  ExpressionPtr node = concatenate_level();
  while (!failed() && (peek().is_operator("+") || peek().is_operator("-"))) {
    ExpressionPtr both = make(Kind::kBinary, peek().text);
    take();
    both->children.push_back(std::move(node));
    both->children.push_back(concatenate_level());
    node = std::move(both);
  }
  return node;
}

ExpressionPtr ExpressionParser::concatenate_level() {
  ExpressionPtr node = product_level();
  if (!peek().is_operator("~")) return node;
  ExpressionPtr all = make(Kind::kConcatenate);
  all->children.push_back(std::move(node));
  while (!failed() && take_operator("~")) all->children.push_back(product_level());
  return all;
}

ExpressionPtr ExpressionParser::product_level() {
  ExpressionPtr node = power_level();
  while (!failed() && peek().type == TokenType::kOperator) {
    const std::string& op = peek().text;
    if (op != "*" && op != "/" && op != "//" && op != "%") break;
    ExpressionPtr both = make(Kind::kBinary, op);
    take();
    both->children.push_back(std::move(node));
    both->children.push_back(power_level());
    node = std::move(both);
  }
  return node;
}

ExpressionPtr ExpressionParser::power_level() {
  ExpressionPtr node = unary_level();
  while (!failed() && peek().is_operator("**")) {
    ExpressionPtr both = make(Kind::kBinary, "**");
    take();
    both->children.push_back(std::move(node));
    both->children.push_back(unary_level());
    node = std::move(both);
  }
  return node;
}

ExpressionPtr ExpressionParser::unary_level(bool with_filters) {
  ExpressionPtr node;
  if (peek().is_operator("-") || peek().is_operator("+")) {
    if (++depth_ > kMaxNesting) {
      --depth_;
      return fail(ErrorCode::kUnsupported, "an expression nested too deep");
    }
    node = make(peek().is_operator("-") ? Kind::kNegative : Kind::kPositive);
    take();
    node->children.push_back(unary_level(false));
    --depth_;
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

}  // namespace evalcar::text::jinja
