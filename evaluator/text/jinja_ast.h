// The syntax tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "evaluator/text/jinja_value.h"

namespace evalcar::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Expression {
  enum class Kind {
    kConstant,   // constant
    kName,       // text
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value, …
    kAttribute,  // children[0].text
    kItem,       // children[0][children[1]]
    kSlice,      // children[0][children[1]:children[2]:children[3]]; any of the three may be null
    kCall,       // children[0](children[1…], named…, *star, **double_star)
    kFilter,     // children[0] | text(children[1…], named…)
    kTest,       // children[0] is text(children[1…], named…)
    kNot,
    kNegative,
    kPositive,
    kAnd,
    kOr,
    kBinary,       // text is the operator: + - * / // % **
    kCompare,      // children[0] operators[0] children[1] operators[1] …
    kConcatenate,  // children, each as text
    kCondition,    // children: test, then, else (may be null)
  };
  Kind kind = Kind::kConstant;
  int line = 1;
  std::string text;
  Value constant;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, double_star;
  std::vector<std::string> operators;
};

/// What is assigned to: a name, a namespace's attribute, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      ///< of `name`, if not empty
  std::vector<Target> parts;  ///< if not empty, a tuple
};

/// The parameters and the body of a macro or a call block.
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  ///< of the last parameters
  bool uses_varargs = false, uses_kwargs = false;
  Block body;
};

struct Statement {
  enum class Kind {
    kData,         // text
    kOutput,       // expression
    kSet,          // target = expression
    kSetBlock,     // target = body, through the filters of `expression`
    kIf,           // branches, otherwise
    kFor,          // target in expression if condition: body, otherwise
    kMacro,        // macro
    kCallBlock,    // expression (a call), macro (the caller)
    kFilterBlock,  // body through the filters of `expression`
    kWith,         // assignments, body
    kScope,        // body (a generation block)
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kData;
  int line = 1;
  std::string text;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Target target;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Block body;
  Block otherwise;
  std::unique_ptr<MacroDefinition> macro;
};

}  // namespace evalcar::text::jinja
