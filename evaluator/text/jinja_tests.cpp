// The tests ("x is …") of Jinja2 3.1.
#include <map>
#include <string>

#include "evaluator/text/jinja_parser.h"
#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/jinja_text.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

struct Call {
  Runtime& runtime;
  const Value& input;
  const Arguments& arguments;

  const Value& operand() const {
    static const Value kNothing;
    if (!arguments.positional.empty()) return arguments.positional.front();
    runtime.type_error("the test wants an argument");
    return kNothing;
  }
  // input modulo a number, as Python has it: 0 … divisor-1.
  std::int64_t modulo(std::int64_t divisor) const {
    std::int64_t number = 0;
    if (!input.as_integer(number) || divisor == 0) {
      runtime.type_error("the test wants integers, the second not zero");
      return -1;
    }
    if (divisor == -1) return 0;
    const std::int64_t rest = number % divisor;
    return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
  }
  bool lower_than_operand() const { return less(runtime, input, operand()); }
  bool operand_lower() const { return less(runtime, operand(), input); }
};

using Test = bool (*)(const Call&);

bool is_equal(const Call& call) { return equal(call.runtime, call.input, call.operand()); }
bool is_not_equal(const Call& call) { return !is_equal(call); }
bool is_less(const Call& call) { return call.lower_than_operand(); }
bool is_greater(const Call& call) { return call.operand_lower(); }
bool is_at_most(const Call& call) { return is_less(call) || is_equal(call); }
bool is_at_least(const Call& call) { return is_greater(call) || is_equal(call); }
bool is_sequence(const Call& call) {
  const List* list = call.input.list();
  return call.input.string() != nullptr || call.input.dict() != nullptr ||
         call.input.is_undefined() ||
         (list != nullptr && (list->form == List::Form::kList || list->form == List::Form::kTuple));
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> table = {
      {"!=", is_not_equal},
      {"<", is_less},
      {"<=", is_at_most},
      {"==", is_equal},
      {">", is_greater},
      {">=", is_at_least},
      {"boolean", [](const Call& call) { return call.input.boolean() != nullptr; }},
      {"callable",
       [](const Call& call) {
         return call.input.object() != nullptr && call.input.object()->callable();
       }},
      {"defined", [](const Call& call) { return !call.input.is_undefined(); }},
      {"divisibleby",
       [](const Call& call) {
         std::int64_t divisor = 0;
         call.operand().as_integer(divisor);
         return call.modulo(divisor) == 0;
       }},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"even", [](const Call& call) { return call.modulo(2) == 0; }},
      {"false",
       [](const Call& call) { return call.input.boolean() != nullptr && !*call.input.boolean(); }},
      {"filter",
       [](const Call& call) {
         return call.input.string() != nullptr && is_filter(*call.input.string());
       }},
      {"float", [](const Call& call) { return call.input.real() != nullptr; }},
      {"ge", is_at_least},
      {"greaterthan", is_greater},
      {"gt", is_greater},
      {"in", [](const Call& call) { return contains(call.runtime, call.operand(), call.input); }},
      {"integer", [](const Call& call) { return call.input.integer() != nullptr; }},
      {"iterable",
       [](const Call& call) {
         return call.input.string() != nullptr || call.input.list() != nullptr ||
                call.input.dict() != nullptr || call.input.is_undefined();
       }},
      {"le", is_at_most},
      {"lessthan", is_less},
      {"lower",
       [](const Call& call) {
         const std::string text = to_text(call.runtime, call.input);
         return to_lower(text) == text && to_upper(text) != text;
       }},
      {"lt", is_less},
      {"mapping", [](const Call& call) { return call.input.dict() != nullptr; }},
      {"ne", is_not_equal},
      {"none", [](const Call& call) { return call.input.is_none(); }},
      {"number",
       [](const Call& call) {
         double number = 0;
         return call.input.as_number(number);
       }},
      {"odd", [](const Call& call) { return call.modulo(2) == 1; }},
      {"sameas",
       [](const Call& call) {
         const Value& other = call.operand();
         return call.input.type_name() == other.type_name() && is_equal(call);
       }},
      {"sequence", is_sequence},
      {"string", [](const Call& call) { return call.input.string() != nullptr; }},
      {"test",
       [](const Call& call) {
         return call.input.string() != nullptr && is_test(*call.input.string());
       }},
      {"true",
       [](const Call& call) { return call.input.boolean() != nullptr && *call.input.boolean(); }},
      {"undefined", [](const Call& call) { return call.input.is_undefined(); }},
      {"upper",
       [](const Call& call) {
         const std::string text = to_text(call.runtime, call.input);
         return to_upper(text) == text && to_lower(text) != text;
       }},
  };
  return table;
}

}  // namespace

bool is_test(std::string_view name) { return tests().contains(name); }

bool apply_test(Runtime& runtime, const std::string& name, const Value& input,
                const Arguments& arguments) {
  const DepthGuard guard(runtime);
  if (!guard || !runtime.charge(1)) return false;
  const auto it = tests().find(name);
  if (it == tests().end()) {
    runtime.fail("the test '" + name + "' is not supported");
    return false;
  }
  return it->second({runtime, input, arguments});
}

}  // namespace evalcar::text::jinja
