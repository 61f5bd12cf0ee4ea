#include "evaluator/tasks/choices.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "evaluator/metrics/mmmu.h"
#include "evaluator/tasks/prompt.h"

namespace evalcar::tasks {
namespace {

constexpr std::size_t kMostChoices = 1000;

std::optional<std::size_t> as_number(const Value& target) {
  std::int64_t number = -1;
  if (target.is_number_integer()) {
    number = target.get<std::int64_t>();
  } else if (target.is_string()) {
    const auto& text = target.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  }
  return number < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(number));
}

std::optional<std::size_t> as_letter(const Value& target, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (target == metrics::option_letter(i)) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> as_text(const Value& target, const std::vector<std::string>& choices) {
  const auto found = std::ranges::find(choices, python_str(target));
  if (found == choices.end()) return std::nullopt;
  return static_cast<std::size_t>(found - choices.begin());
}

Result<std::size_t> right_choice(const std::string& answer, const Value& target,
                                 const std::vector<std::string>& choices) {
  std::optional<std::size_t> index;
  if (answer == "index" || (answer.empty() && target.is_number())) {
    index = as_number(target);
  } else if (answer == "letter") {
    index = as_letter(target, choices.size());
  } else {
    index = as_text(target, choices);
  }
  if (index.has_value() && *index < choices.size()) return *index;
  return make_error(ErrorCode::kCorruption,
                    "the target " + python_json(target) + " names none of the " +
                        std::to_string(choices.size()) + " choices by its " +
                        (answer.empty() ? (target.is_number() ? "index" : "text") : answer) +
                        " ([request] answer = \"index\", \"letter\" or \"text\")");
}

// The length of an empty choice divides its acc_norm, and none of its tokens could be scored.
Status none_is_empty(const std::vector<std::string>& choices, const std::string& place) {
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty())
      return make_error(ErrorCode::kCorruption, place + ": choice " + std::to_string(i) +
                                                    " is empty; expected a text to score");
  }
  return {};
}

}  // namespace

bool is_scalar(const Value& value) {
  return value.is_string() || value.is_number() || value.is_boolean();
}

Result<std::vector<std::string>> choices_of(const Definition& definition, const Value& document,
                                            std::string_view model_family) {
  const RequestDefinition& request = definition.file.request;
  std::vector<std::string> choices;
  if (request.choices_column.empty()) {
    const Settings& settings = variant_of(definition.prompt, model_family);
    for (const std::string& choice : request.choices) {
      EVALCAR_ASSIGN_OR_RETURN(std::string text, render_template(choice, settings, document));
      choices.push_back(std::move(text));
    }
    EVALCAR_RETURN_IF_ERROR(none_is_empty(choices, "[request] choices"));
    return choices;
  }
  const std::string place = "column \"" + request.choices_column + "\"";
  const auto found = document.find(request.choices_column);
  if (found != document.end() && found->is_array()) {
    for (const Value& choice : *found) {
      if (!is_scalar(choice))
        return make_error(ErrorCode::kCorruption,
                          place + ": choice " + std::to_string(choices.size()) + " is " +
                              python_json(choice) + "; expected a text or a number");
      choices.push_back(python_str(choice));
    }
  } else if (found != document.end() && found->is_string()) {
    auto list = metrics::parse_python_list(found->get_ref<const std::string&>());
    if (!list.has_value()) return with_context(std::move(list).error(), place);
    choices = std::move(list).value();
  } else {
    return make_error(ErrorCode::kCorruption, place + " holds no list of choices");
  }
  if (choices.size() < 2 || choices.size() > kMostChoices)
    return make_error(ErrorCode::kCorruption, place + " holds " + std::to_string(choices.size()) +
                                                  " choices; expected 2 to " +
                                                  std::to_string(kMostChoices));
  EVALCAR_RETURN_IF_ERROR(none_is_empty(choices, place));
  return choices;
}

Result<std::vector<std::size_t>> right_choices(const Definition& definition, const Value& document,
                                               const std::vector<std::string>& choices) {
  const Value target = definition.target_text ? Value(*definition.target_text)
                                              : document.value(definition.target_column, Value());
  const std::string place = definition.target_text ? "[columns] target_text"
                                                   : "column \"" + definition.target_column + "\"";
  std::vector<std::size_t> right;
  for (const Value& one : target.is_array() ? target : Value::array({target})) {
    auto index = right_choice(definition.file.request.answer, one, choices);
    if (!index.has_value()) return with_context(std::move(index).error(), place);
    right.push_back(*index);
  }
  if (right.empty())
    return make_error(ErrorCode::kCorruption,
                      place + ": the target is an empty list; expected what names a choice");
  return right;
}

}  // namespace evalcar::tasks
