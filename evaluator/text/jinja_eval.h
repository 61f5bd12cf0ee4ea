// Runs a parsed chat template.
//
// Variables live in frames that point to the frame around them: the template, a loop's turn, a
// macro's call. A macro keeps the frame that it was defined in, so a frame that a macro looks into
// lives until the end of the render; the others end with their block.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "evaluator/text/jinja_ast.h"
#include "evaluator/text/jinja_runtime.h"

namespace evalcar::text::jinja {

/// One scope's variables.
struct Frame {
  Frame* outer = nullptr;
  std::unordered_map<std::string, Value> variables;
  bool kept = false;  ///< a macro was defined in it, or in a frame inside it
};

/// One render. Not thread-safe; the template and the variables are only read.
class Interpreter {
 public:
  /// `now`: what strftime_now tells, in seconds since the epoch, shown in local time.
  Interpreter(Runtime& runtime, std::time_t now);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set_variable(const std::string& name, Value value) {
    root_.variables[name] = std::move(value);
  }
  /// render() adds what generation blocks put out, as bytes [first, second) of the output. The list
  /// must outlive it.
  void note_generation(std::vector<std::pair<std::size_t, std::size_t>>& spans) { spans_ = &spans; }
  /// The output; of no use if the runtime has failed.
  std::string render(const Block& block);

  /// Calls a macro: its own frame inside `definition_frame`.
  Value call_macro(const MacroDefinition& macro, Frame* definition_frame,
                   const Arguments& arguments);
  Runtime& runtime() { return runtime_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Scope;

  // Statements.
  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  void run_call_block(const Statement& statement);
  void run_with(const Statement& statement);
  Flow run_generation(const Statement& statement);
  std::string capture(const Block& block);
  Value through_filters(const Expression* filters, Value input);
  void assign(const Target& target, const Value& value);
  Value define_macro(const MacroDefinition& macro);
  void put(std::string_view text);
  std::vector<Value> loop_items(const Statement& statement);

  // Expressions.
  Value evaluate(const Expression& expression);
  Value evaluate_or_none(const ExpressionPtr& expression);
  Value evaluate_kind(const Expression& expression);
  Value name(const Expression& expression);
  Value binary(const Expression& expression);
  Value compare(const Expression& expression);
  Value dict(const Expression& expression);
  Value call(const Expression& expression, const Arguments& arguments);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions, std::size_t from);
  Arguments arguments_of(const Expression& expression);
  void define_globals();

  Runtime& runtime_;
  std::time_t now_;
  Frame globals_, root_;
  Frame* frame_ = &root_;
  std::string* out_ = nullptr;
  int captures_ = 0;  // outputs that are open, one in the other
  std::vector<std::pair<std::size_t, std::size_t>>* spans_ = nullptr;
  std::vector<std::unique_ptr<Frame>> kept_frames_;
  const Value* filter_input_ = nullptr;  // of filters that have no expression before them
};

/// left op right, for + - * / // % **.
Value arithmetic(Runtime& runtime, std::string_view op, const Value& left, const Value& right);
/// -value, +value.
Value negate(Runtime& runtime, const Value& value, bool negative);
/// range, dict, namespace, joiner, cycler, raise_exception, strftime_now; undefined for other
/// names.
Value global_function(std::string_view name, std::time_t now);
/// The variable `loop` at one turn.
struct LoopState {
  std::vector<Value> items;
  std::size_t index = 0;
  std::int64_t depth = 1;
  std::vector<Value> changed;  ///< what loop.changed was last called with
  bool changed_before = false;
};
Value make_loop(Runtime& runtime, std::shared_ptr<LoopState> state);

}  // namespace evalcar::text::jinja
