#include "evaluator/text/jinja_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

constexpr std::array<std::string_view, 8> kPlainNames = {"Undefined", "NoneType", "bool", "int",
                                                         "float",     "str",      "",     "dict"};

bool numbers(const Value& left, const Value& right, double& a, double& b) {
  return left.as_number(a) && right.as_number(b);
}

bool items_equal(Runtime& runtime, const List& a, const List& b) {
  if (a.items.size() != b.items.size() || a.form != b.form) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!equal(runtime, a.items[i], b.items[i])) return false;
  return true;
}

bool items_equal(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find_key(runtime, b, key);
    if (other == nullptr || !equal(runtime, value, *other)) return false;
  }
  return true;
}

std::string string_repr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  std::array<char, 16> code{};
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    const char32_t c = next.code_point;
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out.append(text, i, next.length_bytes);
    } else {
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(code.data(), code.size(), format, static_cast<unsigned>(c));
      out += code.data();
    }
    i += next.length_bytes;
  }
  return out + quote;
}

std::string list_repr(Runtime& runtime, const List& list) {
  if (list.form == List::Form::kGenerator || list.form == List::Form::kView) {
    runtime.fail("printing a generator or a view of a dict is not supported; use |list");
    return {};
  }
  const bool tuple = list.form == List::Form::kTuple;
  std::string out = tuple ? "(" : "[";
  for (std::size_t i = 0; i < list.items.size() && !runtime.failed(); ++i) {
    if (i > 0) out += ", ";
    out += to_repr(runtime, list.items[i]);
    if (!runtime.charge_bytes(out.size() / 64)) return {};
  }
  if (tuple && list.items.size() == 1) out += ',';
  return out + (tuple ? ")" : "]");
}

std::string dict_repr(Runtime& runtime, const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.items) {
    if (out.size() > 1) out += ", ";
    out += to_repr(runtime, key) + ": " + to_repr(runtime, value);
    if (!runtime.charge_bytes(out.size() / 64)) return {};
  }
  return out + "}";
}

template <typename Range, typename Get>
int depth_of(const Range& items, Get get) {
  int depth = 0;
  for (const auto& item : items) depth = std::max(depth, get(item));
  return depth + 1;
}

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

const std::string& Value::why_undefined() const {
  static const std::string kPlain = "the value is undefined";
  const auto* undefined = std::get_if<Undefined>(&data_);
  return undefined != nullptr && undefined->why ? *undefined->why : kPlain;
}

const std::string* Value::string() const {
  const auto* held = std::get_if<std::shared_ptr<const std::string>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
const List* Value::list() const {
  const auto* held = std::get_if<std::shared_ptr<const List>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
const Dict* Value::dict() const {
  const auto* held = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return held == nullptr ? nullptr : held->get();
}
Object* Value::object() const {
  const auto* held = std::get_if<std::shared_ptr<Object>>(&data_);
  return held == nullptr ? nullptr : held->get();
}

bool Value::as_integer(std::int64_t& out) const {
  if (const bool* flag = boolean()) out = *flag ? 1 : 0;
  if (const std::int64_t* number = integer()) out = *number;
  return boolean() != nullptr || integer() != nullptr;
}

bool Value::as_number(double& out) const {
  std::int64_t number = 0;
  if (as_integer(number)) {
    out = static_cast<double>(number);
    return true;
  }
  if (const double* held = real()) out = *held;
  return real() != nullptr;
}

std::string_view Value::type_name() const {
  if (const Object* held = object()) return held->type_name();
  if (const List* held = list()) {
    switch (held->form) {
      case List::Form::kList:
        return "list";
      case List::Form::kTuple:
        return "tuple";
      case List::Form::kView:
        return "dict_items";
      case List::Form::kGenerator:
        return "generator";
    }
  }
  return kPlainNames[data_.index()];
}

int Value::depth() const {
  if (const List* held = list()) return held->depth;
  if (const Dict* held = dict()) return held->depth;
  return 0;
}

const Value* Arguments::find(std::string_view name) const {
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

Value Object::attribute(Runtime&, std::string_view name) {
  return Value::undefined("'" + std::string(type_name()) + " object' has no attribute '" +
                          std::string(name) + "'");
}
Value Object::call(Runtime& runtime, const Arguments&) {
  return runtime.type_error("'" + std::string(type_name()) + "' object is not callable");
}
bool Object::assign(std::string_view, Value) { return false; }

Value make_list(Runtime& runtime, std::vector<Value> items, List::Form form) {
  runtime.charge(items.size());
  auto list = std::make_shared<List>();
  list->depth = depth_of(items, [](const Value& value) { return value.depth(); });
  if (list->depth > Runtime::kMaxValueDepth) return runtime.fail("a list is nested too deep");
  list->items = std::move(items);
  list->form = form;
  return std::shared_ptr<const List>(std::move(list));
}

Value make_dict(Runtime& runtime, std::vector<std::pair<Value, Value>> items) {
  runtime.charge(items.size());
  auto dict = std::make_shared<Dict>();
  dict->depth = depth_of(
      items, [](const auto& item) { return std::max(item.first.depth(), item.second.depth()); });
  if (dict->depth > Runtime::kMaxValueDepth) return runtime.fail("a dict is nested too deep");
  dict->items = std::move(items);
  return std::shared_ptr<const Dict>(std::move(dict));
}

bool truth(const Value& value) {
  double number = 0;
  if (value.is_undefined() || value.is_none()) return false;
  if (value.as_number(number)) return number != 0;
  if (const auto* text = value.string()) return !text->empty();
  if (const List* list = value.list())
    return list->form == List::Form::kGenerator || !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

bool equal(Runtime& runtime, const Value& left, const Value& right) {
  const DepthGuard guard(runtime);
  if (!guard || !runtime.charge(1)) return false;
  std::int64_t i = 0, j = 0;
  double a = 0, b = 0;
  if (left.as_integer(i) && right.as_integer(j)) return i == j;
  if (numbers(left, right, a, b)) return a == b;
  if (left.is_undefined() || right.is_undefined())
    return left.is_undefined() && right.is_undefined();
  if (left.is_none() || right.is_none()) return left.is_none() && right.is_none();
  if (left.string() != nullptr && right.string() != nullptr) {
    runtime.charge_bytes(std::min(left.string()->size(), right.string()->size()));
    return *left.string() == *right.string();
  }
  if (left.list() != nullptr && right.list() != nullptr)
    return left.list() == right.list() || items_equal(runtime, *left.list(), *right.list());
  if (left.dict() != nullptr && right.dict() != nullptr)
    return left.dict() == right.dict() || items_equal(runtime, *left.dict(), *right.dict());
  return left.object() != nullptr && left.object() == right.object();
}

bool less(Runtime& runtime, const Value& left, const Value& right) {
  const DepthGuard guard(runtime);
  if (!guard || !runtime.charge(1)) return false;
  std::int64_t i = 0, j = 0;
  double a = 0, b = 0;
  if (left.as_integer(i) && right.as_integer(j)) return i < j;
  if (numbers(left, right, a, b)) return a < b;
  if (left.string() != nullptr && right.string() != nullptr) {
    runtime.charge_bytes(std::min(left.string()->size(), right.string()->size()));
    return *left.string() < *right.string();  // UTF-8 keeps the order of code points
  }
  if (left.list() != nullptr && right.list() != nullptr) {
    const auto &x = left.list()->items, &y = right.list()->items;
    for (std::size_t n = 0; n < std::min(x.size(), y.size()); ++n)
      if (!equal(runtime, x[n], y[n])) return less(runtime, x[n], y[n]);
    return x.size() < y.size();
  }
  if (left.is_undefined() || right.is_undefined()) {
    runtime.fail(left.is_undefined() ? left.why_undefined() : right.why_undefined());
    return false;
  }
  runtime.type_error("'<' not supported between instances of '" + std::string(left.type_name()) +
                     "' and '" + std::string(right.type_name()) + "'");
  return false;
}

const Value* find_key(Runtime& runtime, const Dict& dict, const Value& key) {
  for (const auto& item : dict.items)
    if (equal(runtime, item.first, key)) return &item.second;
  return nullptr;
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (const auto* text = container.string()) {
    if (item.string() == nullptr) {
      runtime.type_error("'in <string>' requires string as left operand, not " +
                         std::string(item.type_name()));
      return false;
    }
    runtime.charge_bytes(text->size());
    return text->find(*item.string()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return find_key(runtime, *dict, item) != nullptr;
  if (container.list() == nullptr && !container.is_undefined()) {
    runtime.type_error("argument of type '" + std::string(container.type_name()) +
                       "' is not iterable");
    return false;
  }
  for (const Value& value : iterate(runtime, container))
    if (equal(runtime, value, item)) return true;
  return false;
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (const List* list = value.list()) {
    runtime.charge(list->items.size());
    if (list->form == List::Form::kGenerator && std::exchange(list->consumed, true)) return items;
    items = list->items;
  } else if (const Dict* dict = value.dict()) {
    runtime.charge(dict->items.size());
    for (const auto& item : dict->items) items.push_back(item.first);
  } else if (const auto* text = value.string()) {
    if (!runtime.charge(4 * text->size())) return items;  // a value for each character
    for (std::size_t i = 0; i < text->size();) {
      const Decoded next = decode_utf8(*text, i);
      items.emplace_back(text->substr(i, next.length_bytes));
      i += next.length_bytes;
    }
  } else if (!value.is_undefined()) {
    runtime.type_error("'" + std::string(value.type_name()) + "' object is not iterable");
  }
  return items;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const double size = std::fabs(value);
  // Python writes an exponent below 1e-4 and from 1e16 on.
  const auto format = value != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific
                                                                  : std::chars_format::fixed;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  std::string text(buffer.data(), end);
  if (format == std::chars_format::fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string to_repr(Runtime& runtime, const Value& value) {
  if (const auto* text = value.string()) {
    runtime.charge_bytes(text->size());
    return string_repr(*text);
  }
  if (value.is_undefined()) return "Undefined";
  return to_text(runtime, value);
}

std::string to_text(Runtime& runtime, const Value& value) {
  const DepthGuard guard(runtime);
  if (!guard || !runtime.charge(1)) return {};
  if (value.is_undefined()) return {};
  if (value.is_none()) return "None";
  if (const bool* flag = value.boolean()) return *flag ? "True" : "False";
  if (const std::int64_t* number = value.integer()) return std::to_string(*number);
  if (const double* number = value.real()) return float_text(*number);
  if (const auto* text = value.string()) {
    runtime.charge_bytes(text->size());
    return *text;
  }
  if (const List* list = value.list()) return list_repr(runtime, *list);
  if (const Dict* dict = value.dict()) return dict_repr(runtime, *dict);
  runtime.fail("printing a " + std::string(value.type_name()) + " is not supported");
  return {};
}

}  // namespace evalcar::text::jinja
