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

ExpressionPtr ExpressionParser::primary() {
  const Token& token = peek();
  switch (token.type) {
    case TokenType::kName:
      return name_or_constant();
    case TokenType::kInteger:
    case TokenType::kFloat:
      return number();
    case TokenType::kString: {
      ExpressionPtr node = make(Kind::kConstant);
      std::string text;
      while (peek().type == TokenType::kString) text += take().text;
      node->constant = Value(std::move(text));
      return node;
    }
    case TokenType::kOperator:
      if (token.text == "(") return bracketed();
      if (token.text == "[") return list_literal();
      if (token.text == "{") return dict_literal();
      break;
    default:
      break;
  }
  return unexpected("a value");
}

ExpressionPtr ExpressionParser::name_or_constant() {
  ExpressionPtr node = make(Kind::kConstant);
  const std::string name = take().text;
  if (name == "true" || name == "True") {
    node->constant = Value(true);
  } else if (name == "false" || name == "False") {
    node->constant = Value(false);
  } else if (name == "none" || name == "None") {
    node->constant = Value(None{});
  } else {
    node->kind = Kind::kName;
    node->text = name;
    names_seen_.push_back(name);
  }
  return node;
}

ExpressionPtr ExpressionParser::number() {
  ExpressionPtr node = make(Kind::kConstant);
  const Token token = take();
  if (token.type == TokenType::kFloat) {
    double value = 0;
    std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    node->constant = Value(value);
    return node;
  }
  std::int64_t value = 0;
  const auto result =
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
  if (result.ec != std::errc())
    return fail(ErrorCode::kUnsupported, "the integer " + token.text + " needs more than 64 bits");
  node->constant = Value(value);
  return node;
}

ExpressionPtr ExpressionParser::bracketed() {
  take();
  if (peek().is_operator(")")) {
    ExpressionPtr empty = make(Kind::kTuple);
    take();
    return empty;
  }
  ExpressionPtr node = tuple();
  expect_operator(")");
  return node;
}

ExpressionPtr ExpressionParser::list_literal() {
  ExpressionPtr node = make(Kind::kList);
  take();
  while (!failed() && !peek().is_operator("]")) {
    if (!node->children.empty()) expect_operator(",");
    if (peek().is_operator("]")) break;
    node->children.push_back(expression());
  }
  expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::dict_literal() {
  ExpressionPtr node = make(Kind::kDict);
  take();
  while (!failed() && !peek().is_operator("}")) {
    if (!node->children.empty()) expect_operator(",");
    if (peek().is_operator("}")) break;
    node->children.push_back(expression());
    expect_operator(":");
    node->children.push_back(expression());
  }
  expect_operator("}");
  return node;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  while (!failed()) {
    if (peek().is_operator(".")) {
      take();
      const Token name = peek();
      if (name.type == TokenType::kInteger) {
        ExpressionPtr item = make(Kind::kItem);
        item->children.push_back(std::move(node));
        item->children.push_back(number());
        node = std::move(item);
        continue;
      }
      if (name.type != TokenType::kName) return unexpected("the name of an attribute");
      ExpressionPtr attribute = make(Kind::kAttribute, take().text);
      attribute->children.push_back(std::move(node));
      node = std::move(attribute);
    } else if (peek().is_operator("[")) {
      node = subscript(std::move(node));
    } else if (peek().is_operator("(")) {
      ExpressionPtr call = make(Kind::kCall);
      call->children.push_back(std::move(node));
      call_arguments(*call);
      node = std::move(call);
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr node) {
  ExpressionPtr item = make(Kind::kItem);
  take();
  ExpressionPtr index;
  if (!peek().is_operator(":")) index = expression();
  if (peek().is_operator(":")) return slice(std::move(node), std::move(index));
  if (peek().is_operator(","))
    return fail(ErrorCode::kUnsupported, "a subscript with a comma is not supported");
  expect_operator("]");
  item->children.push_back(std::move(node));
  item->children.push_back(std::move(index));
  return item;
}

ExpressionPtr ExpressionParser::slice(ExpressionPtr node, ExpressionPtr start) {
  ExpressionPtr result = make(Kind::kSlice);
  result->children.push_back(std::move(node));
  result->children.push_back(std::move(start));
  for (int part = 0; part < 2; ++part) {
    const bool present = take_operator(":");
    const bool empty = !present || peek().is_operator(":") || peek().is_operator("]");
    result->children.push_back(empty ? nullptr : expression());
  }
  expect_operator("]");
  return result;
}

void ExpressionParser::call_arguments(Expression& call) {
  expect_operator("(");
  bool first = true;
  while (!failed() && !peek().is_operator(")")) {
    if (!first) expect_operator(",");
    if (peek().is_operator(")")) break;
    first = false;
    if (take_operator("**")) {
      call.double_star = expression();
    } else if (take_operator("*")) {
      call.star = expression();
    } else if (peek().type == TokenType::kName && peek(1).is_operator("=")) {
      std::string name = take().text;
      take();
      call.named.emplace_back(std::move(name), expression());
    } else if (!call.named.empty() || call.star || call.double_star) {
      fail(ErrorCode::kCorruption, "a positional argument behind a named one");
    } else {
      call.children.push_back(expression());
    }
  }
  expect_operator(")");
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr node) {
  while (!failed()) {
    if (take_operator("|")) {
      node = filter(std::move(node));
    } else if (peek().is_name("is")) {
      node = test(std::move(node));
    } else if (peek().is_operator("(")) {
      ExpressionPtr call = make(Kind::kCall);
      call->children.push_back(std::move(node));
      call_arguments(*call);
      node = std::move(call);
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool first_without_pipe) {
  if (first_without_pipe) input = filter(std::move(input));
  while (!failed() && take_operator("|")) input = filter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  if (peek().type != TokenType::kName) return unexpected("the name of a filter");
  ExpressionPtr node = make(Kind::kFilter, peek().text);
  if (!is_filter(node->text))
    return fail(ErrorCode::kUnsupported, "the filter '" + node->text + "' is not supported");
  take();
  node->children.push_back(std::move(input));
  if (peek().is_operator("(")) call_arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  take();
  const bool negated = take_name("not");
  if (peek().type != TokenType::kName) return unexpected("the name of a test");
  ExpressionPtr node = make(Kind::kTest, peek().text);
  if (!is_test(node->text))
    return fail(ErrorCode::kUnsupported, "the test '" + node->text + "' is not supported");
  take();
  node->children.push_back(std::move(input));
  const Token& next = peek();
  const bool is_operand = next.type == TokenType::kString || next.type == TokenType::kInteger ||
                          next.type == TokenType::kFloat || next.is_operator("[") ||
                          next.is_operator("{") ||
                          (next.type == TokenType::kName && next.text != "else" &&
                           next.text != "or" && next.text != "and" && next.text != "if" &&
                           next.text != "is" && next.text != "not" && next.text != "in");
  if (next.is_operator("(")) {
    call_arguments(*node);
  } else if (is_operand) {
    node->children.push_back(postfix(primary()));
  }
  if (!negated) return node;
  ExpressionPtr inverse = make(Kind::kNot);
  inverse->children.push_back(std::move(node));
  return inverse;
}

}  // namespace evalcar::text::jinja
