// The statement half of the interpreter.
#include <algorithm>
#include <string>
#include <utility>

#include "evaluator/text/jinja_eval.h"
#include "evaluator/text/jinja_text.h"

namespace evalcar::text::jinja {
namespace {

using StatementKind = Statement::Kind;

// A macro, or the block of a {% call %}. It points to the frame it was defined in, which is kept.
class Macro final : public Object {
 public:
  Macro(Interpreter& interpreter, const MacroDefinition& definition, Frame* frame)
      : interpreter_(interpreter), definition_(definition), frame_(frame) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value attribute(Runtime& runtime, std::string_view name) override {
    if (name == "name") return definition_.name;
    return Object::attribute(runtime, name);
  }
  Value call(Runtime&, const Arguments& arguments) override {
    return interpreter_.call_macro(definition_, frame_, arguments);
  }

 private:
  Interpreter& interpreter_;
  const MacroDefinition& definition_;
  Frame* frame_;
};

}  // namespace

// A new frame inside `outer`, until the end of the C++ scope; longer if a macro looks into it.
class Interpreter::Scope {
 public:
  Scope(Interpreter& interpreter, Frame* outer)
      : interpreter_(interpreter),
        previous_(interpreter.frame_),
        frame_(std::make_unique<Frame>()) {
    frame_->outer = outer;
    interpreter.frame_ = frame_.get();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    interpreter_.frame_ = previous_;
    if (frame_->kept) interpreter_.kept_frames_.push_back(std::move(frame_));
  }
  void set(const std::string& name, Value value) { frame_->variables[name] = std::move(value); }

 private:
  Interpreter& interpreter_;
  Frame* previous_;
  std::unique_ptr<Frame> frame_;
};

Interpreter::Interpreter(Runtime& runtime, std::time_t now) : runtime_(runtime), now_(now) {
  for (const char* name :
       {"namespace", "range", "dict", "joiner", "cycler", "raise_exception", "strftime_now"})
    globals_.variables[name] = global_function(name, now_);
  root_.outer = &globals_;
}

std::string Interpreter::render(const Block& block) { return capture(block); }

Interpreter::Flow Interpreter::run_generation(const Statement& statement) {
  const Scope scope(*this, frame_);
  if (spans_ == nullptr) return run(statement.body);
  if (captures_ != 1) {
    runtime_.fail("line " + std::to_string(statement.line) +
                  ": a generation block inside a macro or a captured block: where its output "
                  "stands is not known");
    return Flow::kNext;
  }
  const std::size_t begin = out_->size();
  const Flow flow = run(statement.body);
  spans_->emplace_back(begin, out_->size());
  return flow;
}

std::string Interpreter::capture(const Block& block) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  ++captures_;
  run(block);
  --captures_;
  out_ = outer;
  return text;
}

void Interpreter::put(std::string_view text) {
  if (!runtime_.charge_bytes(text.size())) return;
  if (out_->size() + text.size() > Runtime::kMaxOutputBytes) {
    runtime_.fail("the template's output is too long");
    return;
  }
  out_->append(text);
}

Interpreter::Flow Interpreter::run(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = run(*statement);
    if (flow != Flow::kNext) return flow;
    if (runtime_.failed()) return Flow::kBreak;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  const DepthGuard guard(runtime_);
  if (!guard || !runtime_.charge(1)) return Flow::kBreak;
  runtime_.set_line(statement.line);
  switch (statement.kind) {
    case StatementKind::kData:
      put(statement.text);
      break;
    case StatementKind::kOutput:
      put(to_text(runtime_, evaluate(*statement.expression)));
      break;
    case StatementKind::kSet:
      assign(statement.target, evaluate(*statement.expression));
      break;
    case StatementKind::kSetBlock: {
      std::string text;
      {
        const Scope scope(*this, frame_);
        text = capture(statement.body);
      }
      assign(statement.target, through_filters(statement.expression.get(), std::move(text)));
      break;
    }
    case StatementKind::kIf:
      return run_if(statement);
    case StatementKind::kFor:
      return run_for(statement);
    case StatementKind::kMacro:
      frame_->variables[statement.macro->name] = define_macro(*statement.macro);
      break;
    case StatementKind::kCallBlock:
      run_call_block(statement);
      break;
    case StatementKind::kFilterBlock: {
      const Scope scope(*this, frame_);
      std::string text = capture(statement.body);
      put(to_text(runtime_, through_filters(statement.expression.get(), std::move(text))));
      break;
    }
    case StatementKind::kWith:
      run_with(statement);
      break;
    case StatementKind::kScope:
      return run_generation(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Value Interpreter::through_filters(const Expression* filters, Value input) {
  if (filters == nullptr || runtime_.failed()) return input;
  const Value* const outer = std::exchange(filter_input_, &input);
  Value result = evaluate(*filters);
  filter_input_ = outer;
  return result;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches)
    if (truth(evaluate(*condition)) && !runtime_.failed()) return run(body);
  return runtime_.failed() ? Flow::kBreak : run(statement.otherwise);
}

// What the loop goes through: with a condition, the items that satisfy it.
std::vector<Value> Interpreter::loop_items(const Statement& statement) {
  std::vector<Value> items = iterate(runtime_, evaluate(*statement.expression));
  if (!statement.condition) return items;
  std::vector<Value> chosen;
  for (const Value& item : items) {
    if (runtime_.failed()) break;
    const Scope scope(*this, frame_);
    assign(statement.target, item);
    if (truth(evaluate(*statement.condition))) chosen.push_back(item);
  }
  return chosen;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement) {
  const auto state = std::make_shared<LoopState>();
  state->items = loop_items(statement);
  if (runtime_.failed()) return Flow::kBreak;
  if (state->items.empty()) {
    const Scope scope(*this, frame_);
    return run(statement.otherwise);
  }
  const Value loop = make_loop(runtime_, state);
  for (std::size_t i = 0; i < state->items.size() && runtime_.charge(1); ++i) {
    state->index = i;
    Scope scope(*this, frame_);
    scope.set("loop", loop);
    assign(statement.target, state->items[i]);
    if (run(statement.body) == Flow::kBreak) break;
  }
  return runtime_.failed() ? Flow::kBreak : Flow::kNext;
}

void Interpreter::run_with(const Statement& statement) {
  std::vector<Value> values;
  for (const auto& [target, expression] : statement.assignments)
    values.push_back(evaluate(*expression));
  const Scope scope(*this, frame_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  run(statement.body);
}

Value Interpreter::define_macro(const MacroDefinition& macro) {
  runtime_.charge(32);  // it and its frame stay until the end
  for (Frame* frame = frame_; frame != nullptr && !frame->kept; frame = frame->outer)
    frame->kept = true;
  return std::shared_ptr<Object>(runtime_.keep(std::make_shared<Macro>(*this, macro, frame_)));
}

void Interpreter::run_call_block(const Statement& statement) {
  Arguments arguments = arguments_of(*statement.expression);
  arguments.named.emplace_back("caller", define_macro(*statement.macro));
  put(to_text(runtime_, call(*statement.expression, arguments)));
}

Value Interpreter::call_macro(const MacroDefinition& macro, Frame* definition_frame,
                              const Arguments& arguments) {
  const DepthGuard guard(runtime_);
  if (!guard || !runtime_.charge(1)) return {};
  const int line = runtime_.line();
  Scope scope(*this, definition_frame);
  const auto& parameters = macro.parameters;
  const std::size_t first_default = parameters.size() - macro.defaults.size();
  std::vector<bool> used(arguments.named.size());
  for (std::size_t i = 0; i < parameters.size() && !runtime_.failed(); ++i) {
    const auto it = std::find_if(arguments.named.begin(), arguments.named.end(),
                                 [&](const auto& item) { return item.first == parameters[i]; });
    if (it != arguments.named.end())
      used[static_cast<std::size_t>(it - arguments.named.begin())] = true;
    if (i < arguments.positional.size()) {
      scope.set(parameters[i], arguments.positional[i]);
    } else if (it != arguments.named.end()) {
      scope.set(parameters[i], it->second);
    } else if (i >= first_default) {
      scope.set(parameters[i], evaluate(*macro.defaults[i - first_default]));
    } else {
      scope.set(parameters[i],
                Value::undefined("parameter '" + parameters[i] + "' was not provided"));
    }
  }
  std::vector<Value> extra;
  for (std::size_t i = parameters.size(); i < arguments.positional.size(); ++i)
    extra.push_back(arguments.positional[i]);
  if (!extra.empty() && !macro.uses_varargs)
    return runtime_.type_error("macro '" + macro.name + "' takes not more than " +
                               std::to_string(parameters.size()) + " argument(s)");
  std::vector<std::pair<Value, Value>> named;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    if (arguments.named[i].first == "caller") {
      scope.set("caller", arguments.named[i].second);
    } else if (macro.uses_kwargs) {
      named.emplace_back(Value(arguments.named[i].first), arguments.named[i].second);
    } else {
      return runtime_.type_error("macro '" + macro.name + "' takes no keyword argument '" +
                                 arguments.named[i].first + "'");
    }
  }
  if (macro.uses_varargs)
    scope.set("varargs", make_list(runtime_, std::move(extra), List::Form::kTuple));
  if (macro.uses_kwargs) scope.set("kwargs", make_dict(runtime_, std::move(named)));
  std::string text = capture(macro.body);
  if (!runtime_.failed()) runtime_.set_line(line);
  return text;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (runtime_.failed()) return;
  if (!target.parts.empty()) {
    const std::vector<Value> items = iterate(runtime_, value);
    if (runtime_.failed()) return;
    if (items.size() != target.parts.size()) {
      runtime_.fail("ValueError: " + std::to_string(items.size()) + " values to unpack, expected " +
                    std::to_string(target.parts.size()));
      return;
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    frame_->variables[target.name] = value;
    return;
  }
  Expression reference;
  reference.text = target.name;
  const Value holder = name(reference);
  if (holder.object() == nullptr || !holder.object()->assign(target.attribute, value))
    runtime_.fail("cannot assign attribute on non-namespace object");
}

}  // namespace evalcar::text::jinja
