// The methods of Python's str.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "evaluator/text/jinja_lexer.h"
#include "evaluator/text/jinja_method_call.h"
#include "evaluator/text/jinja_text.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

constexpr std::array<std::string_view, 37> kStringMethods = {
    "strip",        "lstrip",     "rstrip",     "split",    "rsplit",    "partition",
    "rpartition",   "splitlines", "startswith", "endswith", "replace",   "find",
    "rfind",        "index",      "rindex",     "count",    "join",      "upper",
    "lower",        "casefold",   "capitalize", "title",    "swapcase",  "removeprefix",
    "removesuffix", "zfill",      "ljust",      "rjust",    "center",    "isupper",
    "islower",      "isspace",    "isalpha",    "isdigit",  "isdecimal", "isnumeric",
    "isalnum"};

// An index or a slice's end as Python reads it: negative ones count from the end.
std::size_t clamp_index(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>(index, 0, static_cast<std::int64_t>(size)));
}

Value split(Runtime& runtime, const std::string& text, const MethodArguments& read,
            bool from_right) {
  const auto separator = read.optional_text(0, "sep");
  std::int64_t limit = read.integer(1, "maxsplit", -1);
  if (separator && separator->empty()) return runtime.fail("ValueError: empty separator");
  std::vector<Value> parts;
  std::string_view rest = text;
  if (!separator) rest = strip(rest, std::nullopt, !from_right, from_right);
  const auto blank_from = [&](std::string_view part) -> std::pair<std::size_t, std::size_t> {
    std::size_t begin = std::string_view::npos, end = 0;
    for (std::size_t i = 0; i < part.size();) {
      const Decoded next = decode_utf8(part, i);
      if (is_python_space(next.code_point)) {
        if (begin == std::string_view::npos || (from_right && end != i)) begin = i;
        end = i + next.length_bytes;
      } else if (begin != std::string_view::npos && !from_right) {
        break;
      }
      i += next.length_bytes;
    }
    return {begin, end};
  };
  while (limit != 0 && !runtime.failed()) {
    if (!runtime.charge(rest.size() / 16)) break;
    std::size_t begin = 0, end = 0;
    if (separator) {
      begin = from_right ? rest.rfind(*separator) : rest.find(*separator);
      end = begin + separator->size();
    } else {
      std::tie(begin, end) = blank_from(rest);
    }
    if (begin == std::string_view::npos) break;
    parts.emplace_back(std::string(from_right ? rest.substr(end) : rest.substr(0, begin)));
    rest = from_right ? rest.substr(0, begin) : rest.substr(end);
    --limit;
  }
  if (!separator) rest = strip(rest, std::nullopt, from_right, !from_right);
  if (separator || !rest.empty()) parts.emplace_back(std::string(rest));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return make_list(runtime, std::move(parts));
}

Value partition(Runtime& runtime, const std::string& text, const MethodArguments& read,
                bool from_right) {
  const std::string separator = read.text(0, "sep");
  if (separator.empty()) return runtime.fail("ValueError: empty separator");
  const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts = {Value(from_right ? std::string() : text), Value(std::string()),
             Value(from_right ? text : std::string())};
  } else {
    parts = {Value(text.substr(0, at)), Value(separator),
             Value(text.substr(at + separator.size()))};
  }
  return make_list(runtime, std::move(parts), List::Form::kTuple);
}

// The part of the text that the optional (start, end) arguments choose, and its first character's
// index.
std::pair<std::string, std::size_t> window(const std::string& text, const MethodArguments& read) {
  const auto all = characters(text);
  const std::size_t begin = clamp_index(read.integer(1, "start", 0), all.size());
  const std::size_t end =
      clamp_index(read.integer(2, "end", static_cast<std::int64_t>(all.size())), all.size());
  std::string part;
  for (std::size_t i = begin; i < end; ++i) part += all[i];
  return {part, begin};
}

Value find_text(Runtime& runtime, const std::string& text, const MethodArguments& read,
                bool from_right, bool must) {
  const std::string wanted = read.text(0, "sub");
  const auto [part, first] = window(text, read);
  const std::size_t at = from_right ? part.rfind(wanted) : part.find(wanted);
  if (at != std::string::npos)
    return Value::size(first + character_count(std::string_view(part).substr(0, at)));
  if (must) return runtime.fail("ValueError: substring not found");
  return static_cast<std::int64_t>(-1);
}

Value starts_or_ends(Runtime& runtime, const std::string& text, const MethodArguments& read,
                     bool starts) {
  const Value* wanted = read.get(0, "prefix");
  std::vector<Value> choices;
  if (wanted != nullptr && wanted->list() != nullptr &&
      wanted->list()->form == List::Form::kTuple) {
    choices = wanted->list()->items;
  } else {
    choices.emplace_back(read.text(0, "prefix"));
  }
  const std::string part = window(text, read).first;
  for (const Value& choice : choices) {
    if (choice.string() == nullptr) return runtime.type_error("startswith and endswith want a str");
    if (starts ? part.starts_with(*choice.string()) : part.ends_with(*choice.string())) return true;
  }
  return false;
}

Value count_text(const std::string& text, const MethodArguments& read) {
  const std::string wanted = read.text(0, "sub");
  if (wanted.empty()) return Value::size(character_count(text) + 1);
  std::int64_t count = 0;
  for (std::size_t at = text.find(wanted); at != std::string::npos;
       at = text.find(wanted, at + wanted.size()))
    ++count;
  return count;
}

// str.title: a letter behind anything but a letter is upper case, every other lower.
std::string python_title(const std::string& text) {
  std::string out;
  bool inside = false;
  for (const std::string_view character : characters(text)) {
    out += inside ? to_lower(character) : to_upper(character);
    inside = is_letter(decode_utf8(character, 0).code_point);
  }
  return out;
}

bool is_cased_as(const std::string& text, bool upper) {
  bool cased = false;
  for (const std::string_view character : characters(text)) {
    const std::string low = to_lower(character), high = to_upper(character);
    if (low == high) continue;
    if (character != (upper ? high : low)) return false;
    cased = true;
  }
  return cased;
}

bool all_characters(const std::string& text, bool (*predicate)(char32_t)) {
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    if (!predicate(next.code_point)) return false;
    i += next.length_bytes;
  }
  return !text.empty();
}

std::string padded(Runtime& runtime, const std::string& text, const MethodArguments& read,
                   double left_share) {
  const std::int64_t width = read.integer(0, "width", 0);
  const std::string fill = read.optional_text(1, "fillchar").value_or(" ");
  const auto size = static_cast<std::int64_t>(character_count(text));
  if (width <= size) return text;
  if (!runtime.charge_bytes(static_cast<std::size_t>(width) * fill.size())) return {};
  const std::int64_t total = width - size;
  // str.center puts the odd one on the left if the width is odd.
  std::int64_t left = left_share == 0.5
                          ? total / 2 + (total & width & 1)
                          : static_cast<std::int64_t>(static_cast<double>(total) * left_share);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (std::int64_t i = left; i < total; ++i) out += fill;
  return out;
}

}  // namespace

bool is_string_method(std::string_view name) {
  return std::find(kStringMethods.begin(), kStringMethods.end(), name) != kStringMethods.end();
}

Value call_string_method(Runtime& runtime, const std::string& text, std::string_view name,
                         const Arguments& arguments) {
  const MethodArguments read(runtime, name, arguments);
  if (!runtime.charge_bytes(text.size() * 4)) return {};
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const auto of = read.optional_text(0, "chars");
    return std::string(strip(text, of ? std::optional<std::string_view>(*of) : std::nullopt,
                             name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") return split(runtime, text, read, name == "rsplit");
  if (name == "partition" || name == "rpartition")
    return partition(runtime, text, read, name == "rpartition");
  if (name == "splitlines") {
    const Value* keep = read.get(0, "keepends");
    std::vector<Value> lines;
    for (auto& line : split_lines(text, keep != nullptr && truth(*keep)))
      lines.emplace_back(std::move(line));
    return make_list(runtime, std::move(lines));
  }
  if (name == "startswith" || name == "endswith")
    return starts_or_ends(runtime, text, read, name == "startswith");
  if (name == "replace") {
    const std::string from = read.text(0, "old"), to = read.text(1, "new");
    const std::size_t places = from.empty() ? text.size() + 1 : text.size() / from.size();
    if (!runtime.charge_bytes(places * to.size() / 4)) return {};
    return replace(text, from, to, read.integer(2, "count", -1));
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex")
    return find_text(runtime, text, read, name[0] == 'r', name.ends_with("index"));
  if (name == "count") return count_text(text, read);
  if (name == "join") {
    const Value* items = read.get(0, "iterable");
    if (items == nullptr) return runtime.type_error("join() takes exactly one argument");
    const auto list = iterate(runtime, *items);
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].string() == nullptr)
        return runtime.type_error("sequence item " + std::to_string(i) +
                                  ": expected str instance, " + std::string(list[i].type_name()) +
                                  " found");
    return join(runtime, text, list);
  }
  if (name == "upper") return to_upper(text);
  if (name == "lower" || name == "casefold") return to_lower(text);
  if (name == "capitalize") return capitalize(text);
  if (name == "title") return python_title(text);
  if (name == "swapcase") {
    std::string out;
    for (const auto character : characters(text))
      out += to_lower(character) == character ? to_upper(character) : to_lower(character);
    return out;
  }
  if (name == "removeprefix") {
    const std::string prefix = read.text(0, "prefix");
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  }
  if (name == "removesuffix") {
    const std::string suffix = read.text(0, "suffix");
    return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
  }
  if (name == "zfill") {
    const bool sign = text.starts_with('-') || text.starts_with('+');
    const Arguments padding{
        {Value(read.integer(0, "width", 0) - (sign ? 1 : 0)), Value(std::string("0"))}, {}};
    return (sign ? text.substr(0, 1) : "") +
           padded(runtime, text.substr(sign ? 1 : 0), MethodArguments(runtime, name, padding), 1.0);
  }
  if (name == "ljust") return padded(runtime, text, read, 0.0);
  if (name == "rjust") return padded(runtime, text, read, 1.0);
  if (name == "center") return padded(runtime, text, read, 0.5);
  if (name == "isupper" || name == "islower") return is_cased_as(text, name == "isupper");
  if (name == "isspace") return all_characters(text, is_python_space);
  if (name == "isalpha") return all_characters(text, is_letter);
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric")
    return all_characters(text, name == "isnumeric" ? is_number : is_decimal_digit);
  return all_characters(text, [](char32_t c) { return is_letter(c) || is_number(c); });  // isalnum
}

}  // namespace evalcar::text::jinja
