// What the methods of strings, lists and dicts share.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "evaluator/text/jinja_runtime.h"

namespace evalcar::text::jinja {

/// What a method was called with; each getter takes a positional index and a name. What is of a
/// wrong type fails the render.
class MethodArguments {
 public:
  MethodArguments(Runtime& runtime, std::string_view name, const Arguments& arguments)
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

/// Whether str has a method of this name that templates may call; `format` is not among them.
bool is_string_method(std::string_view name);
/// Calls it, as Python's str would.
Value call_string_method(Runtime& runtime, const std::string& text, std::string_view name,
                         const Arguments& arguments);

}  // namespace evalcar::text::jinja
