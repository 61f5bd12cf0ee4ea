// The expression half of the interpreter.
#include "evaluator/text/jinja_eval.h"

#include <algorithm>

#include "evaluator/text/jinja_text.h"

namespace evalcar::text::jinja {

using Kind = Expression::Kind;

Value Interpreter::evaluate(const Expression& expression) {
  const DepthGuard guard(runtime_);
  if (!guard || !runtime_.charge(1)) return {};
  runtime_.set_line(expression.line);
  return evaluate_kind(expression);
}

Value Interpreter::evaluate_or_none(const ExpressionPtr& expression) {
  return expression ? evaluate(*expression) : Value(None{});
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& expressions,
                                             std::size_t from) {
  std::vector<Value> values;
  for (std::size_t i = from; i < expressions.size() && !runtime_.failed(); ++i)
    values.push_back(evaluate(*expressions[i]));
  return values;
}

Value Interpreter::evaluate_kind(const Expression& expression) {
  const auto& children = expression.children;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kName:
      return name(expression);
    case Kind::kList:
      return make_list(runtime_, evaluate_all(children, 0));
    case Kind::kTuple:
      return make_list(runtime_, evaluate_all(children, 0), List::Form::kTuple);
    case Kind::kDict:
      return dict(expression);
    case Kind::kAttribute:
      return get_attribute(runtime_, evaluate(*children[0]), expression.text);
    case Kind::kItem: {
      const Value object = evaluate(*children[0]);
      return get_item(runtime_, object, evaluate(*children[1]));
    }
    case Kind::kSlice: {
      const Value object = evaluate(*children[0]);
      const Value start = evaluate_or_none(children[1]), stop = evaluate_or_none(children[2]);
      return get_slice(runtime_, object, start, stop, evaluate_or_none(children[3]));
    }
    case Kind::kCall:
      return call(expression, arguments_of(expression));
    case Kind::kFilter: {
      const Value input = children[0] ? evaluate(*children[0]) : *filter_input_;
      const Arguments arguments = arguments_of(expression);
      return runtime_.failed() ? Value()
                               : apply_filter(runtime_, expression.text, input, arguments);
    }
    case Kind::kTest: {
      const Value input = evaluate(*children[0]);
      const Arguments arguments = arguments_of(expression);
      return runtime_.failed() ? Value()
                               : Value(apply_test(runtime_, expression.text, input, arguments));
    }
    case Kind::kNot:
      return !truth(evaluate(*children[0]));
    case Kind::kNegative:
      return negate(runtime_, evaluate(*children[0]), true);
    case Kind::kPositive:
      return negate(runtime_, evaluate(*children[0]), false);
    case Kind::kAnd: {
      Value left = evaluate(*children[0]);
      return truth(left) ? evaluate(*children[1]) : left;
    }
    case Kind::kOr: {
      Value left = evaluate(*children[0]);
      return truth(left) ? left : evaluate(*children[1]);
    }
    case Kind::kBinary:
      return binary(expression);
    case Kind::kCompare:
      return compare(expression);
    case Kind::kConcatenate:
      return join(runtime_, "", evaluate_all(children, 0));
    case Kind::kCondition:
      if (truth(evaluate(*children[0]))) return evaluate(*children[1]);
      if (children[2]) return evaluate(*children[2]);
      return Value::undefined(
          "the inline if-expression evaluated to false and no else section was defined.");
  }
  return {};
}

Value Interpreter::name(const Expression& expression) {
  for (const Frame* frame = frame_; frame != nullptr; frame = frame->outer) {
    const auto it = frame->variables.find(expression.text);
    if (it != frame->variables.end()) return it->second;
  }
  return Value::undefined("'" + expression.text + "' is undefined");
}

Value Interpreter::binary(const Expression& expression) {
  const Value left = evaluate(*expression.children[0]);
  const Value right = evaluate(*expression.children[1]);
  if (runtime_.failed()) return {};
  return arithmetic(runtime_, expression.text, left, right);
}

Value Interpreter::compare(const Expression& expression) {
  Value left = evaluate(*expression.children[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1]);
    if (runtime_.failed()) return {};
    const std::string& op = expression.operators[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = equal(runtime_, left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = contains(runtime_, right, left) == (op == "in");
    } else if (op == "<" || op == "<=") {
      holds = less(runtime_, left, right) || (op == "<=" && equal(runtime_, left, right));
    } else {
      holds = less(runtime_, right, left) || (op == ">=" && equal(runtime_, left, right));
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::dict(const Expression& expression) {
  std::vector<std::pair<Value, Value>> items;
  const auto& children = expression.children;
  for (std::size_t i = 0; i + 1 < children.size() && !runtime_.failed(); i += 2) {
    Value key = evaluate(*children[i]), value = evaluate(*children[i + 1]);
    if (key.list() != nullptr || key.dict() != nullptr)
      return runtime_.type_error("unhashable type: '" + std::string(key.type_name()) + "'");
    const auto it = std::find_if(items.begin(), items.end(), [&](const auto& item) {
      return equal(runtime_, item.first, key);
    });
    if (it != items.end()) {
      it->second = std::move(value);
    } else {
      items.emplace_back(std::move(key), std::move(value));
    }
  }
  return make_dict(runtime_, std::move(items));
}

Arguments Interpreter::arguments_of(const Expression& expression) {
  Arguments arguments;
  arguments.positional = evaluate_all(expression.children, 1);
  for (const auto& [key, value] : expression.named)
    arguments.named.emplace_back(key, evaluate(*value));
  if (expression.star)
    for (Value& value : iterate(runtime_, evaluate(*expression.star)))
      arguments.positional.push_back(std::move(value));
  if (expression.double_star) {
    const Value extra = evaluate(*expression.double_star);
    if (extra.dict() == nullptr) {
      runtime_.type_error("argument after ** must be a mapping");
    } else {
      for (const auto& [key, value] : extra.dict()->items)
        arguments.named.emplace_back(to_text(runtime_, key), value);
    }
  }
  return arguments;
}

Value Interpreter::call(const Expression& expression, const Arguments& arguments) {
  const Value callee = evaluate(*expression.children[0]);
  if (runtime_.failed()) return {};
  if (callee.is_undefined()) return runtime_.fail(callee.why_undefined());
  if (callee.object() == nullptr)
    return runtime_.type_error("'" + std::string(callee.type_name()) + "' object is not callable");
  return callee.object()->call(runtime_, arguments);
}

}  // namespace evalcar::text::jinja
