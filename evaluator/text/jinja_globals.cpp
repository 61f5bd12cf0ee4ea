// The functions that a template can call by name, and the variable `loop`.
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

#include "evaluator/text/jinja_eval.h"
#include "evaluator/text/jinja_text.h"

namespace evalcar::text::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // the sandbox's MAX_RANGE

class Function final : public Object {
 public:
  using Body = std::function<Value(Runtime&, const Arguments&)>;
  explicit Function(Body body) : body_(std::move(body)) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return body_(runtime, arguments);
  }

 private:
  Body body_;
};

Value function(Function::Body body) {
  return std::shared_ptr<Object>(std::make_shared<Function>(std::move(body)));
}

class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  Value attribute(Runtime& runtime, std::string_view name) override {
    for (const auto& [key, value] : values_)
      if (key == name) return value;
    return Object::attribute(runtime, name);
  }
  bool assign(std::string_view name, Value value) override {
    for (auto& [key, held] : values_) {
      if (key != name) continue;
      held = std::move(value);
      return true;
    }
    values_.emplace_back(name, std::move(value));
    return true;
  }
  void clear() override { values_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  runtime.charge(8);
  const auto made = runtime.keep(std::make_shared<Namespace>());
  for (const Value& argument : arguments.positional) {
    if (argument.dict() == nullptr) return runtime.type_error("namespace() wants a dict or names");
    for (const auto& [key, value] : argument.dict()->items)
      made->assign(to_text(runtime, key), value);
  }
  for (const auto& [key, value] : arguments.named) made->assign(key, value);
  return std::shared_ptr<Object>(made);
}

Value make_range(Runtime& runtime, const Arguments& arguments) {
  std::array<std::int64_t, 3> parts = {0, 0, 1};
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3) return runtime.type_error("range wants 1 to 3 integers");
  for (std::size_t i = 0; i < given.size(); ++i)
    if (!given[i].as_integer(parts[given.size() == 1 ? 1 : i]))
      return runtime.type_error("'" + std::string(given[i].type_name()) +
                                "' object cannot be interpreted as an integer");
  const auto [begin, end, step] = parts;
  if (step == 0) return runtime.fail("ValueError: range() arg 3 must not be zero");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(items.size()) >= kMaxRange)
      return runtime.fail(
          "OverflowError: Range too big. The sandbox blocks ranges larger than "
          "MAX_RANGE (100000).");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(runtime, std::move(items));
}

Value make_dict_from(Runtime& runtime, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> items;
  for (const Value& argument : arguments.positional) {
    if (argument.dict() != nullptr) {
      items = argument.dict()->items;
      continue;
    }
    for (const Value& pair : iterate(runtime, argument)) {
      const auto both = iterate(runtime, pair);
      if (both.size() != 2) return runtime.fail("ValueError: dict() wants pairs");
      items.emplace_back(both[0], both[1]);
    }
  }
  for (const auto& [key, value] : arguments.named) {
    const auto it = std::find_if(items.begin(), items.end(), [&, name = &key](const auto& item) {
      return item.first.string() != nullptr && *item.first.string() == *name;
    });
    if (it != items.end()) {
      it->second = value;
    } else {
      items.emplace_back(Value(key), value);
    }
  }
  return make_dict(runtime, std::move(items));
}

Value make_joiner(Runtime& runtime, const Arguments& arguments) {
  const std::string glue =
      arguments.positional.empty() ? ", " : to_text(runtime, arguments.positional[0]);
  return function([glue, used = false](Runtime&, const Arguments&) mutable -> Value {
    return std::exchange(used, true) ? glue : std::string();
  });
}

class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  Value attribute(Runtime& runtime, std::string_view name) override {
    if (name == "current") return items_[at_];
    if (name == "next")
      return function([this](Runtime&, const Arguments&) {
        const Value value = items_[at_];
        at_ = (at_ + 1) % items_.size();
        return value;
      });
    if (name == "reset")
      return function([this](Runtime&, const Arguments&) {
        at_ = 0;
        return Value(None{});
      });
    return Object::attribute(runtime, name);
  }

 private:
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

Value make_cycler(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.empty())
    return runtime.type_error("at least one item has to be provided");
  // Kept, since its methods point to it.
  return std::shared_ptr<Object>(runtime.keep(std::make_shared<Cycler>(arguments.positional)));
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
  const std::string words =
      arguments.positional.empty() ? "" : to_text(runtime, arguments.positional[0]);
  return runtime.fail("the template refuses: " + words);
}

Value strftime_now(Runtime& runtime, const Arguments& arguments, std::time_t now) {
  if (arguments.positional.empty() || arguments.positional[0].string() == nullptr)
    return runtime.type_error("strftime_now wants a format");
  const std::string& format = *arguments.positional[0].string();
  if (format.empty()) return std::string();
  if (format.size() > 1000) return runtime.fail("strftime_now: the format is too long");
  std::tm local{};
  localtime_r(&now, &local);
  std::vector<char> buffer(format.size() * 64 + 256);
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  return std::string(buffer.data(), size);
}

class Loop final : public Object {
 public:
  explicit Loop(std::shared_ptr<LoopState> state) : state_(std::move(state)) {}
  std::string_view type_name() const override { return "LoopContext"; }

  Value attribute(Runtime& runtime, std::string_view name) override {
    const std::size_t index = state_->index, size = state_->items.size();
    if (name == "index") return Value::size(index + 1);
    if (name == "index0") return Value::size(index);
    if (name == "revindex") return Value::size(size - index);
    if (name == "revindex0") return Value::size(size - index - 1);
    if (name == "first") return index == 0;
    if (name == "last") return index + 1 == size;
    if (name == "length") return Value::size(size);
    if (name == "depth") return state_->depth;
    if (name == "depth0") return state_->depth - 1;
    if (name == "previtem")
      return index > 0 ? state_->items[index - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return index + 1 < size ? state_->items[index + 1]
                              : Value::undefined("there is no next item");
    if (name == "cycle")
      return function([state = state_](Runtime& run, const Arguments& arguments) {
        const auto& choices = arguments.positional;
        if (choices.empty()) return run.type_error("no items for cycling given");
        return choices[state->index % choices.size()];
      });
    if (name == "changed")
      return function([state = state_](Runtime& run, const Arguments& arguments) -> Value {
        bool same = state->changed_before && state->changed.size() == arguments.positional.size();
        for (std::size_t i = 0; same && i < state->changed.size(); ++i)
          same = equal(run, state->changed[i], arguments.positional[i]);
        state->changed = arguments.positional;
        state->changed_before = true;
        return !same;
      });
    return Object::attribute(runtime, name);
  }
  void clear() override { state_ = std::make_shared<LoopState>(); }

 private:
  std::shared_ptr<LoopState> state_;
};

}  // namespace

Value make_loop(Runtime& runtime, std::shared_ptr<LoopState> state) {
  runtime.charge(8);
  return std::shared_ptr<Object>(runtime.keep(std::make_shared<Loop>(std::move(state))));
}

Value global_function(std::string_view name, std::time_t now) {
  if (name == "namespace") return function(make_namespace);
  if (name == "range") return function(make_range);
  if (name == "dict") return function(make_dict_from);
  if (name == "joiner") return function(make_joiner);
  if (name == "cycler") return function(make_cycler);
  if (name == "raise_exception") return function(raise_exception);
  if (name == "strftime_now")
    return function([now](Runtime& runtime, const Arguments& arguments) {
      return strftime_now(runtime, arguments, now);
    });
  return {};
}

}  // namespace evalcar::text::jinja
