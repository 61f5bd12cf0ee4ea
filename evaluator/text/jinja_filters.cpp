// The filters that chat templates use, as Jinja2 3.1 defines them (tojson: as transformers does):
// those of one value. Those that go through a sequence are in jinja_sequence_filters.cpp.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "evaluator/text/jinja_filter_call.h"
#include "evaluator/text/jinja_parser.h"
#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/jinja_text.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

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

const FilterTable& value_filters() {
  static const FilterTable table = {
      {"abs", do_abs},
      {"attr", do_attr},
      {"capitalize", [](const Call& call) { return Value(capitalize(call.input_text())); }},
      {"count", do_length},
      {"d", do_default},
      {"default", do_default},
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
      {"replace", do_replace},
      {"reverse", do_reverse},
      {"round", do_round},
      {"safe", [](const Call& call) { return Value(call.input_text()); }},
      {"string", [](const Call& call) { return Value(call.input_text()); }},
      {"title", [](const Call& call) { return Value(title_words(call.input_text())); }},
      {"tojson", do_tojson},
      {"trim", do_trim},
      {"upper", [](const Call& call) { return Value(to_upper(call.input_text())); }},
      {"wordcount", do_wordcount},
  };
  return table;
}

Filter find_filter(std::string_view name) {
  for (const FilterTable* const table : {&value_filters(), &sequence_filters()}) {
    if (const auto found = table->find(name); found != table->end()) return found->second;
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Runtime& runtime, const std::string& name, const Value& input,
                   const Arguments& arguments) {
  const DepthGuard guard(runtime);
  if (!guard || !runtime.charge(1)) return {};
  const Filter filter = find_filter(name);
  if (filter == nullptr) return runtime.fail("the filter '" + name + "' is not supported");
  return filter({runtime, input, arguments});
}

}  // namespace evalcar::text::jinja
