// What a filter is given, and the tables in which filters are found.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/jinja_text.h"

namespace evalcar::text::jinja {

/// One application of a filter. Arguments are found by place or by name.
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
using FilterTable = std::map<std::string_view, Filter>;

/// "a.b.0" or an integer: the attribute path of map, selectattr, sort, join, …
Value by_path(Runtime& runtime, Value value, const Value& path);

/// map, select, sort, sum, …: what takes a sequence item by item.
const FilterTable& sequence_filters();

}  // namespace evalcar::text::jinja
