// Attributes, items and methods of values.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "evaluator/text/jinja_lexer.h"
#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/jinja_text.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

using Call = std::function<Value(Runtime&, const Arguments&)>;

class Method final : public Object {
 public:
  explicit Method(Call call) : call_(std::move(call)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return call_(runtime, arguments);
  }

 private:
  Call call_;
};

Value method(Call call) {
  return std::shared_ptr<Object>(std::make_shared<Method>(std::move(call)));
}

// What a method was called with; each getter takes a positional index and a name.
class Reader {
 public:
  Reader(Runtime& runtime, std::string_view name, const Arguments& arguments)
      : runtime_(runtime), name_(name), arguments_(arguments) {}

  const Value* get(std::size_t index, std::string_view name) const {
    if (index < arguments_.positional.size()) return &arguments_.positional[index];
    return arguments_.find(name);
  }
  std::string text(std::size_t index, std::string_view name) const {
    const Value* value = get(index, name);
    if (value != nullptr && value->string() != nullptr) return *value->string();
    runtime_.type_error(std::string(name_) + "() wants a str as argument " +
                        std::to_string(index + 1));
    return {};
  }
  std::optional<std::string> optional_text(std::size_t index, std::string_view name) const {
    const Value* value = get(index, name);
    if (value == nullptr || value->is_none()) return std::nullopt;
    return text(index, name);
  }
  std::int64_t integer(std::size_t index, std::string_view name, std::int64_t otherwise) const {
    const Value* value = get(index, name);
    std::int64_t result = otherwise;
    if (value != nullptr && !value->is_none() && !value->as_integer(result))
      runtime_.type_error(std::string(name_) + "() wants an int as argument " +
                          std::to_string(index + 1));
    return result;
  }

 private:
  Runtime& runtime_;
  std::string_view name_;
  const Arguments& arguments_;
};

// An index or a slice's end as Python reads it: negative ones count from the end.
std::size_t clamp_index(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>(index, 0, static_cast<std::int64_t>(size)));
}

Value split(Runtime& runtime, const std::string& text, const Reader& read, bool from_right) {
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

Value partition(Runtime& runtime, const std::string& text, const Reader& read, bool from_right) {
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
std::pair<std::string, std::size_t> window(const std::string& text, const Reader& read) {
  const auto all = characters(text);
  const std::size_t begin = clamp_index(read.integer(1, "start", 0), all.size());
  const std::size_t end =
      clamp_index(read.integer(2, "end", static_cast<std::int64_t>(all.size())), all.size());
  std::string part;
  for (std::size_t i = begin; i < end; ++i) part += all[i];
  return {part, begin};
}

Value find_text(Runtime& runtime, const std::string& text, const Reader& read, bool from_right,
                bool must) {
  const std::string wanted = read.text(0, "sub");
  const auto [part, first] = window(text, read);
  const std::size_t at = from_right ? part.rfind(wanted) : part.find(wanted);
  if (at != std::string::npos)
    return Value::size(first + character_count(std::string_view(part).substr(0, at)));
  if (must) return runtime.fail("ValueError: substring not found");
  return static_cast<std::int64_t>(-1);
}

Value starts_or_ends(Runtime& runtime, const std::string& text, const Reader& read, bool starts) {
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

Value count_text(const std::string& text, const Reader& read) {
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

std::string padded(Runtime& runtime, const std::string& text, const Reader& read,
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

Value string_method(Runtime& runtime, const std::string& text, std::string_view name,
                    const Arguments& arguments) {
  const Reader read(runtime, name, arguments);
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
           padded(runtime, text.substr(sign ? 1 : 0), Reader(runtime, name, padding), 1.0);
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

Value dict_method(Runtime& runtime, const Value& self, std::string_view name,
                  const Arguments& arguments) {
  const Dict& dict = *self.dict();
  const Reader read(runtime, name, arguments);
  if (name == "copy") return self;
  if (name == "get") {
    const Value* key = read.get(0, "key");
    if (key == nullptr) return runtime.type_error("get expected at least 1 argument, got 0");
    if (const Value* found = find_key(runtime, dict, *key)) return *found;
    const Value* otherwise = read.get(1, "default");
    return otherwise != nullptr ? *otherwise : Value(None{});
  }
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    if (name == "items") {
      items.push_back(make_list(runtime, {key, value}, List::Form::kTuple));
    } else {
      items.push_back(name == "keys" ? key : value);
    }
  }
  return make_list(runtime, std::move(items), List::Form::kView);
}

Value list_method(Runtime& runtime, const Value& self, std::string_view name,
                  const Arguments& arguments) {
  if (name == "copy") return self;
  if (arguments.positional.size() != 1)
    return runtime.type_error(std::string(name) + "() takes exactly one argument");
  const auto& items = self.list()->items;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!equal(runtime, items[i], arguments.positional[0])) continue;
    if (name == "index") return Value::size(i);
    ++count;
  }
  if (name == "index") return runtime.fail("ValueError: the value is not in list");
  return count;
}

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 37> kStringMethods = {
    "strip",        "lstrip",     "rstrip",     "split",    "rsplit",    "partition",
    "rpartition",   "splitlines", "startswith", "endswith", "replace",   "find",
    "rfind",        "index",      "rindex",     "count",    "join",      "upper",
    "lower",        "casefold",   "capitalize", "title",    "swapcase",  "removeprefix",
    "removesuffix", "zfill",      "ljust",      "rjust",    "center",    "isupper",
    "islower",      "isspace",    "isalpha",    "isdigit",  "isdecimal", "isnumeric",
    "isalnum"};
constexpr std::array<std::string_view, 5> kDictMethods = {"items", "keys", "values", "get", "copy"};
constexpr std::array<std::string_view, 3> kListMethods = {"index", "count", "copy"};
// They would change the value: the sandbox has them, but not to call.
constexpr std::array<std::string_view, 5> kDictForbidden = {"pop", "clear", "update", "popitem",
                                                            "setdefault"};
constexpr std::array<std::string_view, 8> kListForbidden = {
    "append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"};

bool changes_value(const Value& value, std::string_view name) {
  const List* list = value.list();
  const bool is_list = list != nullptr && list->form == List::Form::kList;
  return (value.dict() != nullptr && among(kDictForbidden, name)) ||
         (is_list && among(kListForbidden, name));
}

// The sandbox's answer: an undefined that says why as soon as it is called.
Value forbidden(const Value& object, std::string_view name) {
  return Value::undefined("access to attribute '" + std::string(name) + "' of '" +
                          std::string(object.type_name()) + "' object is unsafe.");
}

Value missing(const Value& object, const std::string& name) {
  if (object.is_none()) return Value::undefined("'None' has no attribute '" + name + "'");
  return Value::undefined("'" + std::string(object.type_name()) + " object' has no attribute '" +
                          name + "'");
}

}  // namespace

Value method_of(Runtime&, const Value& value, std::string_view name) {
  const bool is_list = value.list() != nullptr && value.list()->form != List::Form::kGenerator &&
                       value.list()->form != List::Form::kView;
  const std::string held(name);
  if (value.string() != nullptr && name == "format")
    return method([value](Runtime& runtime, const Arguments& arguments) {
      return format_braces(runtime, *value.string(), arguments);
    });
  if (value.string() != nullptr && among(kStringMethods, name))
    return method([value, held](Runtime& runtime, const Arguments& arguments) {
      return string_method(runtime, *value.string(), held, arguments);
    });
  if (value.dict() != nullptr && among(kDictMethods, name))
    return method([value, held](Runtime& runtime, const Arguments& arguments) {
      return dict_method(runtime, value, held, arguments);
    });
  if (is_list && among(kListMethods, name))
    return method([value, held](Runtime& runtime, const Arguments& arguments) {
      return list_method(runtime, value, held, arguments);
    });
  return {};
}

Value get_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  if (object.is_undefined()) return runtime.fail(object.why_undefined());
  if (name.starts_with("__")) return forbidden(object, name);
  if (Object* held = object.object()) return held->attribute(runtime, name);
  if (changes_value(object, name)) return forbidden(object, name);
  Value found = method_of(runtime, object, name);
  if (!found.is_undefined()) return found;
  if (const Dict* dict = object.dict())
    if (const Value* value = find_key(runtime, *dict, Value(name))) return *value;
  return missing(object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return runtime.fail(object.why_undefined());
  if (const Dict* dict = object.dict())
    if (const Value* value = find_key(runtime, *dict, key)) return *value;
  std::int64_t index = 0;
  const List* list = object.list();
  const bool indexable =
      list == nullptr || list->form == List::Form::kList || list->form == List::Form::kTuple;
  if (key.as_integer(index) && indexable && (list != nullptr || object.string() != nullptr)) {
    const auto all =
        list == nullptr ? characters(*object.string()) : std::vector<std::string_view>();
    if (list == nullptr) runtime.charge(all.size());
    const std::size_t size = list != nullptr ? list->items.size() : all.size();
    if (index < 0) index += static_cast<std::int64_t>(size);
    if (index >= 0 && static_cast<std::size_t>(index) < size) {
      const auto at = static_cast<std::size_t>(index);
      return list != nullptr ? list->items[at] : Value(std::string(all[at]));
    }
  }
  if (key.string() == nullptr)
    return Value::undefined("'" + std::string(object.type_name()) + " object' has no element " +
                            to_repr(runtime, key));
  if (object.dict() != nullptr) {  // the key is not there: perhaps a method
    if (changes_value(object, *key.string())) return forbidden(object, *key.string());
    Value found = method_of(runtime, object, *key.string());
    return found.is_undefined() ? missing(object, *key.string()) : found;
  }
  return get_attribute(runtime, object, *key.string());
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is_undefined()) return runtime.fail(object.why_undefined());
  const List* list = object.list();
  if (list == nullptr && object.string() == nullptr)
    return Value::undefined("'" + std::string(object.type_name()) +
                            " object' has no element slice");
  const auto all = list == nullptr ? characters(*object.string()) : std::vector<std::string_view>();
  const auto size = static_cast<std::int64_t>(list != nullptr ? list->items.size() : all.size());
  if (!runtime.charge(static_cast<std::size_t>(size))) return {};

  const auto part = [&](const Value& value, std::int64_t otherwise) {
    std::int64_t result = otherwise;
    if (!value.is_none() && !value.as_integer(result))
      runtime.type_error("slice indices must be integers or None or have an __index__ method");
    return result;
  };
  const std::int64_t by = part(step, 1);
  if (by == 0) return runtime.fail("ValueError: slice step cannot be zero");
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    std::int64_t index = part(value, 0);
    if (index < 0) index = index < -size ? -1 : index + size;
    return by > 0 ? std::clamp<std::int64_t>(index, 0, size)
                  : std::clamp<std::int64_t>(index, -1, size - 1);
  };
  const std::int64_t begin = bound(start, by > 0 ? 0 : size - 1);
  const std::int64_t end = bound(stop, by > 0 ? size : -1);

  std::vector<Value> items;
  std::string text;
  const std::int64_t stride = std::clamp<std::int64_t>(by, -size - 1, size + 1);
  for (std::int64_t i = begin; stride > 0 ? i < end : i > end; i += stride) {
    if (list != nullptr) {
      items.push_back(list->items[static_cast<std::size_t>(i)]);
    } else {
      text += all[static_cast<std::size_t>(i)];
    }
  }
  return list != nullptr ? make_list(runtime, std::move(items), list->form)
                         : Value(std::move(text));
}

}  // namespace evalcar::text::jinja
