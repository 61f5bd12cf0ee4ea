// The tightest levels of an expression: values, what stands behind them, filters and tests.
#include <charconv>
#include <utility>

#include "evaluator/text/jinja_expressions.h"
#include "evaluator/text/jinja_parser.h"

namespace evalcar::text::jinja {

using Kind = Expression::Kind;

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
      if (token.text == "[") return collection(Kind::kList, "]");
      if (token.text == "{") return collection(Kind::kDict, "}");
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

ExpressionPtr ExpressionParser::collection(Kind kind, std::string_view close) {
  ExpressionPtr node = make(kind);
  take();
  while (!failed() && !peek().is_operator(close)) {
    if (!node->children.empty()) expect_operator(",");
    if (peek().is_operator(close)) break;
    node->children.push_back(expression());
    if (kind != Kind::kDict) continue;
    expect_operator(":");
    node->children.push_back(expression());
  }
  expect_operator(close);
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
