// The filters that chat templates use, as Jinja2 3.1 defines them (tojson: as transformers does).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "evaluator/text/jinja_parser.h"
#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/jinja_text.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

// One application of a filter.
struct Call {
  Runtime& runtime;
  const Value& input;
  const Arguments& arguments;

  const Value* get(std::size_t index, std::string_view name) const {
    return index < arguments.positional.size() ? &arguments.positional[index]
                                               : arguments.find(name);
  }
  bool flag(std::size_t index, std::string_view name, bool otherwise = false) const {
    const Value* value = get(index, name);
    return value == nullptr ? otherwise : truth(*value);
  }
  std::string text(std::size_t index, std::string_view name, const std::string& otherwise) const {
    const Value* value = get(index, name);
    return value == nullptr ? otherwise : to_text(runtime, *value);
  }
  std::int64_t integer(std::size_t index, std::string_view name, std::int64_t otherwise) const {
    const Value* value = get(index, name);
    std::int64_t result = otherwise;
    if (value != nullptr && !value->as_integer(result))
      runtime.type_error("the argument '" + std::string(name) + "' must be an integer");
    return result;
  }
  std::string input_text() const { return to_text(runtime, input); }
  std::vector<Value> items() const { return iterate(runtime, input); }
  Value generator(std::vector<Value> values) const {
    return make_list(runtime, std::move(values), List::Form::kGenerator);
  }
};

using Filter = Value (*)(const Call&);

// "a.b.0" or an integer: the attribute path of map, selectattr, sort, …
Value by_path(Runtime& runtime, Value value, const Value& path) {
  if (path.string() == nullptr) return get_item(runtime, value, path);
  const std::string& text = *path.string();
  for (std::size_t begin = 0; begin <= text.size() && !runtime.failed();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    std::int64_t index = 0;
    const bool numeric =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos &&
        std::from_chars(part.data(), part.data() + part.size(), index).ec == std::errc();
    value = get_item(runtime, value, numeric ? Value(index) : Value(part));
    begin = end + 1;
  }
  return value;
}

// Strings compare without regard to case unless it is asked for.
Value sort_key(const Call& call, const Value& item, const Value* attribute, bool case_sensitive) {
  const Value key =
      attribute == nullptr || attribute->is_none() ? item : by_path(call.runtime, item, *attribute);
  if (!case_sensitive && key.string() != nullptr) return to_lower(*key.string());
  return key;
}

Value do_default(const Call& call) {
  const bool missing = call.input.is_undefined() || (call.flag(1, "boolean") && !truth(call.input));
  const Value* otherwise = call.get(0, "default_value");
  if (!missing) return call.input;
  return otherwise != nullptr ? *otherwise : Value(std::string());
}

Value do_length(const Call& call) {
  if (const auto* text = call.input.string()) return Value::size(character_count(*text));
  if (const Dict* dict = call.input.dict()) return Value::size(dict->items.size());
  if (call.input.is_undefined()) return Value::size(0);
  const List* list = call.input.list();
  if (list == nullptr || list->form == List::Form::kGenerator)
    return call.runtime.type_error("object of type '" + std::string(call.input.type_name()) +
                                   "' has no len()");
  return Value::size(list->items.size());
}

Value do_trim(const Call& call) {
  const std::string text = call.input_text();
  const Value* of = call.get(0, "chars");
  if (of == nullptr || of->is_none()) return std::string(strip(text, std::nullopt, true, true));
  const std::string characters_to_strip = to_text(call.runtime, *of);
  return std::string(strip(text, characters_to_strip, true, true));
}

Value do_join(const Call& call) {
  const Value* attribute = call.get(1, "attribute");
  std::vector<Value> items = call.items();
  if (attribute != nullptr && !attribute->is_none())
    for (Value& item : items) item = by_path(call.runtime, item, *attribute);
  return join(call.runtime, call.text(0, "d", ""), items);
}

Value do_first(const Call& call) {
  const auto items = call.items();
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}
Value do_last(const Call& call) {
  const auto items = call.items();
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value do_int(const Call& call) {
  const Value* otherwise = call.get(0, "default");
  const Value fallback = otherwise != nullptr ? *otherwise : Value(std::int64_t{0});
  const std::int64_t base = call.integer(1, "base", 10);
  std::int64_t number = 0;
  double real = 0;
  if (call.input.is_undefined()) return call.runtime.fail(call.input.why_undefined());
  if (call.input.as_integer(number)) return number;
  if (const auto* text = call.input.string()) {
    std::string trimmed(strip(*text, std::nullopt, true, true));
    std::erase(trimmed, '_');
    const char* begin = trimmed.data() + (trimmed.starts_with('+') ? 1 : 0);
    const char* end = trimmed.data() + trimmed.size();
    const auto whole = std::from_chars(begin, end, number,
                                       static_cast<int>(std::clamp<std::int64_t>(base, 2, 36)));
    if (whole.ptr == end && whole.ec == std::errc() && begin != end) return number;
    const auto part = std::from_chars(begin, end, real);
    if (part.ptr != end || part.ec != std::errc() || begin == end) return fallback;
  } else if (!call.input.as_number(real)) {
    return fallback;
  }
  if (!std::isfinite(real)) return fallback;
  if (std::fabs(real) >= 9.2e18) return call.runtime.fail("an integer of more than 64 bits");
  return static_cast<std::int64_t>(real);
}

Value do_float(const Call& call) {
  const Value* otherwise = call.get(0, "default");
  double real = 0;
  if (call.input.is_undefined()) return call.runtime.fail(call.input.why_undefined());
  if (call.input.as_number(real)) return real;
  if (const auto* text = call.input.string()) {
    const std::string trimmed(strip(*text, std::nullopt, true, true));
    const char* begin = trimmed.data() + (trimmed.starts_with('+') ? 1 : 0);
    const char* end = trimmed.data() + trimmed.size();
    const auto parsed = std::from_chars(begin, end, real);
    if (parsed.ptr == end && begin != end) return real;
  }
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value do_replace(const Call& call) {
  const std::string text = call.input_text(), from = call.text(0, "old", ""),
                    to = call.text(1, "new", "");
  const Value* count = call.get(2, "count");
  const std::int64_t limit =
      count == nullptr || count->is_none() ? -1 : call.integer(2, "count", -1);
  const std::size_t places = from.empty() ? text.size() + 1 : text.size() / from.size();
  if (!call.runtime.charge_bytes(places * to.size() / 4)) return {};
  return replace(text, from, to, limit);
}

Value do_indent(const Call& call) {
  const Value* width = call.get(0, "width");
  const bool first = call.flag(1, "first"), blank = call.flag(2, "blank");
  const std::string indention = width != nullptr && width->string() != nullptr
                                    ? *width->string()
                                    : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                      call.integer(0, "width", 4), 0, 1000)),
                                                  ' ');
  const auto lines = split_lines(call.input_text() + "\n", false);
  if (!call.runtime.charge_bytes(lines.size() * indention.size())) return {};
  std::string out = first ? indention : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return out;
}

Value do_tojson(const Call& call) {
  JsonOptions options;
  options.ensure_ascii = call.flag(0, "ensure_ascii");
  const Value* indent = call.get(1, "indent");
  if (indent != nullptr && !indent->is_none()) {
    options.indent = indent->string() != nullptr
                         ? *indent->string()
                         : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                           call.integer(1, "indent", 0), 0, 100)),
                                       ' ');
    options.item_separator = ",";
  }
  const Value* separators = call.get(2, "separators");
  if (separators != nullptr && !separators->is_none()) {
    const auto both = iterate(call.runtime, *separators);
    if (both.size() != 2) return call.runtime.type_error("separators must be two strings");
    options.item_separator = to_text(call.runtime, both[0]);
    options.key_separator = to_text(call.runtime, both[1]);
  }
  options.sort_keys = call.flag(3, "sort_keys");
  return to_json(call.runtime, call.input, options);
}

Value do_map(const Call& call) {
  std::vector<Value> items = call.items();
  if (const Value* attribute = call.arguments.find("attribute")) {
    const Value* otherwise = call.arguments.find("default");
    for (Value& item : items) {
      item = by_path(call.runtime, item, *attribute);
      if (item.is_undefined() && otherwise != nullptr) item = *otherwise;
    }
    return call.generator(std::move(items));
  }
  if (call.arguments.positional.empty() || call.arguments.positional[0].string() == nullptr)
    return call.runtime.fail("map requires a filter argument");
  const std::string name = *call.arguments.positional[0].string();
  Arguments rest = call.arguments;
  rest.positional.erase(rest.positional.begin());
  for (Value& item : items) {
    if (call.runtime.failed()) break;
    item = apply_filter(call.runtime, name, item, rest);
  }
  return call.generator(std::move(items));
}

// select, reject, selectattr, rejectattr: with a test, or by truth.
Value pick(const Call& call, bool by_attribute, bool wanted) {
  Arguments rest = call.arguments;
  Value attribute, test;
  const auto take_first = [&](Value& into) {
    if (rest.positional.empty()) return;
    into = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  };
  if (by_attribute) {
    take_first(attribute);
    if (attribute.is_undefined()) return call.runtime.fail("missing parameter for attribute name");
  }
  take_first(test);
  std::vector<Value> picked;
  for (const Value& item : call.items()) {
    if (call.runtime.failed()) break;
    const Value subject = by_attribute ? by_path(call.runtime, item, attribute) : item;
    const bool passes = test.string() == nullptr
                            ? truth(subject)
                            : apply_test(call.runtime, *test.string(), subject, rest);
    if (passes == wanted) picked.push_back(item);
  }
  return call.generator(std::move(picked));
}

// The keys of sort's "a,b": one after the other.
Value sort_keys(const Call& call, const Value& item, const Value* attributes, bool case_sensitive) {
  if (attributes == nullptr || attributes->string() == nullptr)
    return sort_key(call, item, attributes, case_sensitive);
  std::vector<Value> keys;
  const std::string& names = *attributes->string();
  for (std::size_t begin = 0; begin <= names.size() && !call.runtime.failed();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const Value name(names.substr(begin, end - begin));
    keys.push_back(sort_key(call, item, &name, case_sensitive));
    begin = end + 1;
  }
  return make_list(call.runtime, std::move(keys));
}

Value do_sort(const Call& call) {
  const bool case_sensitive = call.flag(1, "case_sensitive");
  const Value* attribute = call.get(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : call.items())
    keyed.emplace_back(sort_keys(call, item, attribute, case_sensitive), item);
  const bool reverse = call.flag(0, "reverse");
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    if (call.runtime.failed()) return false;  // keeps the order a strict one
    return reverse ? less(call.runtime, b.first, a.first) : less(call.runtime, a.first, b.first);
  });
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return make_list(call.runtime, std::move(items));
}

Value do_dictsort(const Call& call) {
  const Dict* dict = call.input.dict();
  if (dict == nullptr) return call.runtime.type_error("dictsort wants a dict");
  const std::string by = call.text(1, "by", "key");
  const bool case_sensitive = call.flag(0, "case_sensitive"), reverse = call.flag(2, "reverse");
  auto items = dict->items;
  const auto key = [&](const auto& item) {
    return sort_key(call, by == "value" ? item.second : item.first, nullptr, case_sensitive);
  };
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    if (call.runtime.failed()) return false;
    return reverse ? less(call.runtime, key(b), key(a)) : less(call.runtime, key(a), key(b));
  });
  std::vector<Value> pairs;
  for (const auto& [name, value] : items)
    pairs.push_back(make_list(call.runtime, {name, value}, List::Form::kTuple));
  return make_list(call.runtime, std::move(pairs));
}

Value do_unique(const Call& call) {
  const bool case_sensitive = call.flag(0, "case_sensitive");
  const Value* attribute = call.get(1, "attribute");
  std::vector<Value> seen, kept;
  for (const Value& item : call.items()) {
    const Value key = sort_key(call, item, attribute, case_sensitive);
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equal(call.runtime, key, other);
    });
    if (known || call.runtime.failed()) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return call.generator(std::move(kept));
}

Value extreme(const Call& call, bool largest) {
  const bool case_sensitive = call.flag(0, "case_sensitive");
  const Value* attribute = call.get(1, "attribute");
  Value best = Value::undefined("No aggregated item, sequence was empty."), best_key;
  bool first = true;
  for (const Value& item : call.items()) {
    const Value key = sort_key(call, item, attribute, case_sensitive);
    const bool better =
        first || (largest ? less(call.runtime, best_key, key) : less(call.runtime, key, best_key));
    if (better) {
      best = item;
      best_key = key;
    }
    first = false;
  }
  return best;
}

Value do_sum(const Call& call) {
  const Value* attribute = call.get(0, "attribute");
  const Value* start = call.get(1, "start");
  std::int64_t whole = 0;
  double real = 0;
  bool is_whole = true;
  const auto add = [&](const Value& value) {
    std::int64_t number = 0;
    double part = 0;
    if (!value.as_number(part)) {
      call.runtime.type_error("unsupported operand type(s) for +: '" +
                              std::string(value.type_name()) + "'");
    }
    if (!value.as_integer(number) || __builtin_add_overflow(whole, number, &whole))
      is_whole = false;
    real += part;
  };
  if (start != nullptr) add(*start);
  for (const Value& item : call.items())
    add(attribute == nullptr || attribute->is_none() ? item
                                                     : by_path(call.runtime, item, *attribute));
  return is_whole ? Value(whole) : Value(real);
}

Value do_reverse(const Call& call) {
  if (const auto* text = call.input.string()) {
    std::string out;
    const auto all = characters(*text);
    for (auto it = all.rbegin(); it != all.rend(); ++it) out += *it;
    return out;
  }
  std::vector<Value> items = call.items();
  std::reverse(items.begin(), items.end());
  return call.generator(std::move(items));
}

Value do_items(const Call& call) {
  if (call.input.is_undefined()) return call.generator({});
  if (call.input.dict() == nullptr)
    return call.runtime.type_error("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : call.input.dict()->items)
    pairs.push_back(make_list(call.runtime, {key, value}, List::Form::kTuple));
  return call.generator(std::move(pairs));
}

Value do_round(const Call& call) {
  const std::int64_t digits = std::clamp<std::int64_t>(call.integer(0, "precision", 0), 0, 300);
  const std::string method = call.text(1, "method", "common");
  std::int64_t number = 0;
  double real = 0;
  if (method == "common" && call.input.as_integer(number)) return number;
  if (!call.input.as_number(real)) return call.runtime.type_error("round wants a number");
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(digits));
    return (method == "ceil" ? std::ceil(real * scale) : std::floor(real * scale)) / scale;
  }
  if (method != "common") return call.runtime.fail("method must be common, ceil or floor");
  std::array<char, 700> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), real);
  return std::strtod(buffer.data(), nullptr);
}

Value do_abs(const Call& call) {
  std::int64_t number = 0;
  double real = 0;
  if (call.input.as_integer(number)) {
    if (number == INT64_MIN) return call.runtime.fail("an integer of more than 64 bits");
    return number < 0 ? -number : number;
  }
  if (call.input.as_number(real)) return std::fabs(real);
  return call.runtime.type_error("bad operand type for abs(): '" +
                                 std::string(call.input.type_name()) + "'");
}

Value do_escape(const Call& call) {
  std::string out;
  for (const char c : call.input_text()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value do_batch(const Call& call) {
  const std::int64_t size = call.integer(0, "linecount", 0);
  if (size <= 0) return call.runtime.fail("batch wants a positive number");
  const Value* fill = call.get(1, "fill_with");
  std::vector<Value> rows, row;
  for (const Value& item : call.items()) {
    if (static_cast<std::int64_t>(row.size()) == size)
      rows.push_back(make_list(call.runtime, std::exchange(row, {})));
    row.push_back(item);
  }
  if (fill != nullptr && !fill->is_none() && !row.empty())
    while (static_cast<std::int64_t>(row.size()) < size && call.runtime.charge(1))
      row.push_back(*fill);
  if (!row.empty()) rows.push_back(make_list(call.runtime, std::move(row)));
  return call.generator(std::move(rows));
}

Value do_attr(const Call& call) {
  const std::string name = call.text(0, "name", "");
  if (Object* object = call.input.object()) return object->attribute(call.runtime, name);
  return method_of(call.runtime, call.input, name);
}

Value do_format(const Call& call) {
  return format_percent(call.runtime, call.input_text(),
                        make_list(call.runtime, call.arguments.positional, List::Form::kTuple));
}

Value do_wordcount(const Call& call) {
  std::int64_t count = 0;
  bool inside = false;
  const std::string text = call.input_text();
  for (const auto character : characters(text)) {
    const bool word = is_word(decode_utf8(character, 0).code_point);
    if (word && !inside) ++count;
    inside = word;
  }
  return count;
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> table = {
      {"abs", do_abs},
      {"attr", do_attr},
      {"batch", do_batch},
      {"capitalize", [](const Call& call) { return Value(capitalize(call.input_text())); }},
      {"count", do_length},
      {"d", do_default},
      {"default", do_default},
      {"dictsort", do_dictsort},
      {"e", do_escape},
      {"escape", do_escape},
      {"first", do_first},
      {"float", do_float},
      {"forceescape", do_escape},
      {"format", do_format},
      {"indent", do_indent},
      {"int", do_int},
      {"items", do_items},
      {"join", do_join},
      {"last", do_last},
      {"length", do_length},
      {"list", [](const Call& call) { return make_list(call.runtime, call.items()); }},
      {"lower", [](const Call& call) { return Value(to_lower(call.input_text())); }},
      {"map", do_map},
      {"max", [](const Call& call) { return extreme(call, true); }},
      {"min", [](const Call& call) { return extreme(call, false); }},
      {"reject", [](const Call& call) { return pick(call, false, false); }},
      {"rejectattr", [](const Call& call) { return pick(call, true, false); }},
      {"replace", do_replace},
      {"reverse", do_reverse},
      {"round", do_round},
      {"safe", [](const Call& call) { return Value(call.input_text()); }},
      {"select", [](const Call& call) { return pick(call, false, true); }},
      {"selectattr", [](const Call& call) { return pick(call, true, true); }},
      {"sort", do_sort},
      {"string", [](const Call& call) { return Value(call.input_text()); }},
      {"sum", do_sum},
      {"title", [](const Call& call) { return Value(title_words(call.input_text())); }},
      {"tojson", do_tojson},
      {"trim", do_trim},
      {"unique", do_unique},
      {"upper", [](const Call& call) { return Value(to_upper(call.input_text())); }},
      {"wordcount", do_wordcount},
  };
  return table;
}

}  // namespace

bool is_filter(std::string_view name) { return filters().contains(name); }

Value apply_filter(Runtime& runtime, const std::string& name, const Value& input,
                   const Arguments& arguments) {
  const DepthGuard guard(runtime);
  if (!guard || !runtime.charge(1)) return {};
  const auto it = filters().find(name);
  if (it == filters().end()) return runtime.fail("the filter '" + name + "' is not supported");
  return it->second({runtime, input, arguments});
}

}  // namespace evalcar::text::jinja
