// The methods of values.
#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "evaluator/text/jinja_method_call.h"
#include "evaluator/text/jinja_text.h"

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

Value dict_method(Runtime& runtime, const Value& self, std::string_view name,
                  const Arguments& arguments) {
  const Dict& dict = *self.dict();
  const MethodArguments read(runtime, name, arguments);
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

constexpr std::array<std::string_view, 5> kDictMethods = {"items", "keys", "values", "get", "copy"};
constexpr std::array<std::string_view, 3> kListMethods = {"index", "count", "copy"};

}  // namespace

Value method_of(Runtime&, const Value& value, std::string_view name) {
  const bool is_list = value.list() != nullptr && value.list()->form != List::Form::kGenerator &&
                       value.list()->form != List::Form::kView;
  const std::string held(name);
  if (value.string() != nullptr && name == "format")
    return method([value](Runtime& runtime, const Arguments& arguments) {
      return format_braces(runtime, *value.string(), arguments);
    });
  if (value.string() != nullptr && is_string_method(name))
    return method([value, held](Runtime& runtime, const Arguments& arguments) {
      return call_string_method(runtime, *value.string(), held, arguments);
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

}  // namespace evalcar::text::jinja
