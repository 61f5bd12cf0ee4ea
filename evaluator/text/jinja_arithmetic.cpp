#include <cmath>
#include <string>

#include "evaluator/text/jinja_eval.h"
#include "evaluator/text/jinja_text.h"

namespace evalcar::text::jinja {
namespace {

Value type_mismatch(Runtime& runtime, std::string_view op, const Value& left, const Value& right) {
  if (left.is_undefined()) return runtime.fail(left.why_undefined());
  if (right.is_undefined()) return runtime.fail(right.why_undefined());
  return runtime.type_error("unsupported operand type(s) for " + std::string(op) + ": '" +
                            std::string(left.type_name()) + "' and '" +
                            std::string(right.type_name()) + "'");
}

Value overflow(Runtime& runtime) {
  return runtime.fail("OverflowError: an integer of more than 64 bits");
}

Value integer_power(Runtime& runtime, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  if (base == 1 || base == 0 || exponent == 0) return exponent == 0 ? std::int64_t{1} : base;
  if (base == -1) return std::int64_t{exponent % 2 == 0 ? 1 : -1};
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) return overflow(runtime);
  return result;
}

// Division that rounds down, as Python's.
Value floor_division(Runtime& runtime, std::int64_t a, std::int64_t b, bool remainder) {
  if (b == 0) return runtime.fail("ZeroDivisionError: integer division or modulo by zero");
  if (b == -1) {
    if (remainder) return std::int64_t{0};
    if (a == INT64_MIN) return overflow(runtime);
    return -a;
  }
  std::int64_t quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return remainder ? rest : quotient;
}

Value integers(Runtime& runtime, std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &result) ? overflow(runtime) : Value(result);
  if (op == "-") return __builtin_sub_overflow(a, b, &result) ? overflow(runtime) : Value(result);
  if (op == "*") return __builtin_mul_overflow(a, b, &result) ? overflow(runtime) : Value(result);
  if (op == "**") return integer_power(runtime, a, b);
  if (op == "/") {
    if (b == 0) return runtime.fail("ZeroDivisionError: division by zero");
    return static_cast<double>(a) / static_cast<double>(b);
  }
  return floor_division(runtime, a, b, op == "%");
}

Value reals(Runtime& runtime, std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) return runtime.fail("ZeroDivisionError: float division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return op == "%" ? rest : std::floor(a / b);
}

Value repeat(Runtime& runtime, const Value& sequence, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (const auto* text = sequence.string()) {
    const std::size_t limit = Runtime::kMaxOutputBytes;
    if (!text->empty() && times > limit / text->size())
      return runtime.fail("the template makes a text that is too long");
    if (!runtime.charge_bytes(text->size() * times)) return {};
    std::string out;
    for (std::size_t i = 0; i < times && !text->empty(); ++i) out += *text;
    return out;
  }
  std::vector<Value> items;
  const auto& part = sequence.list()->items;
  for (std::size_t i = 0; i < times && !part.empty(); ++i) {
    if (!runtime.charge(part.size())) return {};
    items.insert(items.end(), part.begin(), part.end());
  }
  return make_list(runtime, std::move(items), sequence.list()->form);
}

bool is_sequence(const Value& value) {
  return value.string() != nullptr ||
         (value.list() != nullptr &&
          (value.list()->form == List::Form::kList || value.list()->form == List::Form::kTuple));
}

}  // namespace

Value arithmetic(Runtime& runtime, std::string_view op, const Value& left, const Value& right) {
  std::int64_t i = 0, j = 0;
  double a = 0, b = 0;
  if (left.as_integer(i) && right.as_integer(j)) return integers(runtime, op, i, j);
  if (left.as_number(a) && right.as_number(b)) return reals(runtime, op, a, b);
  if (op == "+" && left.string() != nullptr && right.string() != nullptr) {
    if (!runtime.charge_bytes(left.string()->size() + right.string()->size())) return {};
    return *left.string() + *right.string();
  }
  if (op == "+" && left.list() != nullptr && is_sequence(left) && is_sequence(right) &&
      right.list() != nullptr && left.list()->form == right.list()->form) {
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    return make_list(runtime, std::move(items), left.list()->form);
  }
  if (op == "*" && is_sequence(left) && right.as_integer(j)) return repeat(runtime, left, j);
  if (op == "*" && is_sequence(right) && left.as_integer(i)) return repeat(runtime, right, i);
  if (op == "%" && left.string() != nullptr) return format_percent(runtime, *left.string(), right);
  return type_mismatch(runtime, op, left, right);
}

Value negate(Runtime& runtime, const Value& value, bool negative) {
  std::int64_t number = 0;
  double real = 0;
  if (value.as_integer(number)) {
    if (number == INT64_MIN) return overflow(runtime);
    return negative ? -number : number;
  }
  if (value.as_number(real)) return negative ? -real : real;
  if (value.is_undefined()) return runtime.fail(value.why_undefined());
  return runtime.type_error("bad operand type for unary " + std::string(negative ? "-" : "+") +
                            ": '" + std::string(value.type_name()) + "'");
}

}  // namespace evalcar::text::jinja
