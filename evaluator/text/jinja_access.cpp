// Attributes, items and slices of values.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/jinja_text.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

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
