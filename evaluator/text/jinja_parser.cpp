// The statement half of the parser.
#include "evaluator/text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "evaluator/text/jinja_expressions.h"

namespace evalcar::text::jinja {
namespace {

using StatementKind = Statement::Kind;
constexpr int kMaxBlocks = 60;  // nested in each other

class StatementParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Block> run() {
    Block block = body({});
    if (error_) return std::move(*error_);
    return block;
  }

 private:
  using EndNames = std::initializer_list<std::string_view>;

  std::unique_ptr<Statement> make(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = peek().line;
    return statement;
  }

  void expect_block_end() {
    if (failed()) return;
    if (at_block_end()) {
      take();
    } else {
      unexpected("'%}'");
    }
  }

  // Statements up to a tag whose name is one of `ends`; that name is not taken, its "{%" is. With
  // no ends: up to the end of the template.
  Block body(EndNames ends) {
    Block block;
    if (++depth_ > kMaxBlocks) fail(ErrorCode::kUnsupported, "blocks nested too deep");
    while (!failed()) {
      const Token& token = peek();
      if (token.type == TokenType::kData) {
        block.push_back(make(StatementKind::kData));
        block.back()->text = take().text;
      } else if (token.type == TokenType::kVariableBegin) {
        take();
        block.push_back(make(StatementKind::kOutput));
        block.back()->expression = tuple();
        if (peek().type != TokenType::kVariableEnd) unexpected("'}}'");
        take();
      } else if (token.type == TokenType::kBlockBegin) {
        take();
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return peek().is_name(end); }))
          break;
        statement(block, ends);
      } else {
        if (ends.size() > 0) unexpected("{% " + std::string(*ends.begin()) + " %}");
        break;
      }
    }
    --depth_;
    return block;
  }

  // body(), and the end tag's name and "%}" taken.
  Block body_to(std::string_view end) {
    expect_block_end();
    Block block = body({end});
    take();
    expect_block_end();
    return block;
  }

  void statement(Block& block, EndNames ends) {
    const Token name = take();
    if (name.is_name("if")) return if_statement(block);
    if (name.is_name("for")) return for_statement(block);
    if (name.is_name("set")) return set_statement(block);
    if (name.is_name("macro")) return macro_statement(block);
    if (name.is_name("call")) return call_statement(block);
    if (name.is_name("filter")) return filter_statement(block);
    if (name.is_name("with")) return with_statement(block);
    if (name.is_name("generation")) {
      block.push_back(make(StatementKind::kScope));
      block.back()->body = body_to("endgeneration");
      return;
    }
    if (name.is_name("break") || name.is_name("continue")) {
      if (loops_ == 0) fail(ErrorCode::kCorruption, "'" + name.text + "' outside of a loop");
      block.push_back(
          make(name.is_name("break") ? StatementKind::kBreak : StatementKind::kContinue));
      return expect_block_end();
    }
    if (name.type != TokenType::kName) {
      unexpected("the name of a statement");
      return;
    }
    const bool known = name.text.starts_with("end") || name.text == "else" || name.text == "elif";
    const std::string wanted =
        ends.size() > 0 ? "; expected {% " + std::string(*ends.begin()) + " %}" : "";
    fail(known ? ErrorCode::kCorruption : ErrorCode::kUnsupported,
         "the statement '" + name.text + "' is not " + (known ? "expected here" : "supported") +
             wanted);
  }

  void if_statement(Block& block) {
    block.push_back(make(StatementKind::kIf));
    Statement& node = *block.back();
    while (!failed()) {
      ExpressionPtr condition = tuple(false);
      expect_block_end();
      Block branch = body({"elif", "else", "endif"});
      node.branches.emplace_back(std::move(condition), std::move(branch));
      const Token name = take();
      if (name.is_name("elif")) continue;
      if (name.is_name("else")) {
        node.otherwise = body_to("endif");
      } else {
        expect_block_end();
      }
      return;
    }
  }

  void for_statement(Block& block) {
    block.push_back(make(StatementKind::kFor));
    Statement& node = *block.back();
    node.target = target();
    if (!take_name("in")) unexpected("'in'");
    node.expression = tuple(false);
    if (take_name("if")) node.condition = expression();
    if (peek().is_name("recursive"))
      fail(ErrorCode::kUnsupported, "a recursive loop is not supported");
    expect_block_end();
    ++loops_;
    node.body = body({"else", "endfor"});
    --loops_;
    if (take().is_name("else")) {
      node.otherwise = body_to("endfor");
    } else {
      expect_block_end();
    }
  }

  Target single_target() {
    Target result;
    if (take_operator("(")) {
      result = target();
      expect_operator(")");
      return result;
    }
    if (peek().type != TokenType::kName) {
      unexpected("a name to assign to");
      return result;
    }
    result.name = take().text;
    return result;
  }

  // a  or  a, b  or  (a, b), c
  Target target() {
    if (++depth_ > kMaxBlocks) fail(ErrorCode::kUnsupported, "targets nested too deep");
    Target first = single_target();
    if (peek().is_operator(",")) {
      Target all;
      all.parts.push_back(std::move(first));
      while (!failed() && take_operator(",")) {
        if (peek().is_name("in") || peek().is_operator("=") || peek().is_operator(")")) break;
        all.parts.push_back(single_target());
      }
      first = std::move(all);
    }
    --depth_;
    return first;
  }

  void set_statement(Block& block) {
    block.push_back(make(StatementKind::kSet));
    Statement& node = *block.back();
    if (peek().type == TokenType::kName && peek(1).is_operator(".")) {
      node.target.name = take().text;
      take();
      if (peek().type != TokenType::kName) unexpected("the name of an attribute");
      node.target.attribute = take().text;
    } else {
      node.target = target();
    }
    if (take_operator("=")) {
      node.expression = tuple();
      return expect_block_end();
    }
    node.kind = StatementKind::kSetBlock;
    node.expression = filters(nullptr);
    node.body = body_to("endset");
  }

  // ( a, b=1, … ) of a macro or a call block.
  void signature(MacroDefinition& macro) {
    expect_operator("(");
    while (!failed() && !peek().is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      if (peek().is_operator(")")) break;
      if (peek().type != TokenType::kName) unexpected("the name of a parameter");
      macro.parameters.push_back(take().text);
      if (take_operator("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail(ErrorCode::kCorruption, "a parameter without a default behind one with a default");
      }
    }
    expect_operator(")");
  }

  void macro_body(MacroDefinition& macro, std::string_view end) {
    const std::size_t names_before = names_seen_.size();
    const int outer_loops = std::exchange(loops_, 0);
    macro.body = body_to(end);
    loops_ = outer_loops;
    const auto first = names_seen_.begin() + static_cast<std::ptrdiff_t>(names_before);
    macro.uses_varargs = std::find(first, names_seen_.end(), "varargs") != names_seen_.end();
    macro.uses_kwargs = std::find(first, names_seen_.end(), "kwargs") != names_seen_.end();
  }

  void macro_statement(Block& block) {
    block.push_back(make(StatementKind::kMacro));
    auto macro = std::make_unique<MacroDefinition>();
    if (peek().type != TokenType::kName) unexpected("the name of a macro");
    macro->name = take().text;
    signature(*macro);
    macro_body(*macro, "endmacro");
    block.back()->macro = std::move(macro);
  }

  void call_statement(Block& block) {
    block.push_back(make(StatementKind::kCallBlock));
    Statement& node = *block.back();
    node.macro = std::make_unique<MacroDefinition>();
    node.macro->name = "caller";
    if (peek().is_operator("(")) signature(*node.macro);
    node.expression = expression();
    if (!failed() && node.expression->kind != Expression::Kind::kCall)
      fail(ErrorCode::kCorruption, "{% call %} wants a call");
    macro_body(*node.macro, "endcall");
  }

  void filter_statement(Block& block) {
    block.push_back(make(StatementKind::kFilterBlock));
    Statement& node = *block.back();
    node.expression = filters(nullptr, true);
    node.body = body_to("endfilter");
  }

  void with_statement(Block& block) {
    block.push_back(make(StatementKind::kWith));
    Statement& node = *block.back();
    while (!failed() && !at_block_end()) {
      if (!node.assignments.empty()) expect_operator(",");
      Target name = single_target();
      expect_operator("=");
      node.assignments.emplace_back(std::move(name), expression());
    }
    node.body = body_to("endwith");
  }

  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Result<Block> parse(std::string_view source) {
  EVALCAR_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  return StatementParser(std::move(tokens)).run();
}

}  // namespace evalcar::text::jinja
