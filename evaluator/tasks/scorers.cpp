#include "evaluator/tasks/scorers.h"

#include <algorithm>
#include <map>

#include "evaluator/metrics/mme.h"
#include "evaluator/metrics/mmmu.h"
#include "evaluator/metrics/text_scorers.h"

namespace evalcar::tasks {
namespace {

Result<Value> column(const Value& document, const std::string& name) {
  const auto found = document.find(name);
  if (found == document.end())
    return make_error(ErrorCode::kInvalidArgument, "no column \"" + name + "\"");
  return *found;
}

Result<SampleScore> score_anls(const Definition& definition, const Value& document,
                               const std::string& answer) {
  EVALCAR_ASSIGN_OR_RETURN(const Value target, column(document, definition.target_column));
  const auto score = metrics::anls(references_of(target), answer);
  if (!score)
    return make_error(ErrorCode::kCorruption, "column \"" + definition.target_column +
                                                  "\" holds no answer to compare with");
  SampleScore result;
  result.value = *score;
  // Below the threshold Python's literal 0 is an int.
  result.metrics["anls"] = *score == 0 ? Value(0) : Value(*score);
  return result;
}

// Answers as TextVQA has them, texts.
double accuracy_of_texts(const Value& answers, const std::string& answer) {
  std::vector<std::string> references;
  for (const Value& item : answers) references.push_back(python_str(item));
  return metrics::vqa_accuracy(references, answer);
}

// Answers as VQAv2 has them, each with its number and the annotator's confidence: lmms-eval's vqav2
// leaves out all that are equal to the one it compares for, in all of that.
double accuracy_of_records(Value answers, const std::string& normalised) {
  std::vector<bool> matches;
  std::vector<std::size_t> groups;
  std::map<Value, std::size_t> group_of;
  for (Value& item : answers) {
    Value& text = item["answer"];
    text = metrics::vqav2_normalise(python_str(text));
    matches.push_back(text == normalised);
    groups.push_back(group_of.try_emplace(item, group_of.size()).first->second);
  }
  return metrics::vqa_accuracy_of(matches, groups);
}

Result<SampleScore> score_vqa(const Definition& definition, const Value& document,
                              const std::string& answer) {
  EVALCAR_ASSIGN_OR_RETURN(const Value answers, column(document, definition.scorer.answers));
  const auto broken = [&](const char* what) {
    return make_error(ErrorCode::kCorruption,
                      "column \"" + definition.scorer.answers + "\" " + what);
  };
  if (!answers.is_null() && !answers.is_array()) return broken("is not a list of answers");
  if (answers.is_array() && answers.empty()) return broken("holds no answer to compare with");
  const bool are_records = answers.is_array() && answers[0].is_object();
  const auto is_record = [](const Value& item) {
    return item.is_object() && item.contains("answer");
  };
  if (are_records
          ? !std::ranges::all_of(answers, is_record)
          : std::ranges::any_of(answers, [](const Value& item) { return item.is_object(); }))
    return broken("holds an answer of another form: expected texts, or records with \"answer\"");
  const std::string normalised =
      are_records ? metrics::vqav2_normalise(answer) : metrics::vqa_normalise(answer);
  SampleScore result;
  if (answers.is_array())
    result.value =
        are_records ? accuracy_of_records(answers, normalised) : accuracy_of_texts(answers, answer);
  // min(1, matches / 3) is Python's int 1 from three matches on, and the mean of ints is an int.
  const bool whole = answers.is_null() || result.value == 1;
  result.metrics["exact_match"] =
      whole ? Value(static_cast<int>(result.value)) : Value(result.value);
  if (!definition.scorer.id.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(const Value id, column(document, definition.scorer.id));
    result.metrics["submission"]["question_id"] = id;
    result.metrics["submission"]["answer"] = normalised;
  }
  return result;
}

Result<SampleScore> score_mmmu(const Definition& definition, const Value& document,
                               const std::string& answer, bool strict,
                               metrics::PythonRandom& random) {
  EVALCAR_ASSIGN_OR_RETURN(const Value id, column(document, "id"));
  EVALCAR_ASSIGN_OR_RETURN(const Value type, column(document, "question_type"));
  EVALCAR_ASSIGN_OR_RETURN(const Value gold, column(document, definition.target_column));
  const std::string name = python_str(id);
  const auto subject = metrics::subject_of_id(name);
  if (!subject)
    return make_error(ErrorCode::kCorruption,
                      "id \"" + name + "\" is not of the form <split>_<subject>_<number>");
  SampleScore result;
  result.group = *subject;
  Value parsed;
  std::string submission;
  if (type == "multiple-choice") {
    EVALCAR_ASSIGN_OR_RETURN(const Value options_column, column(document, "options"));
    auto options = metrics::parse_python_list(python_str(options_column));
    if (!options) return with_context(options.error(), "column \"options\"");
    if (options->empty())
      return make_error(ErrorCode::kCorruption, "a multiple-choice question without options");
    const auto chosen = metrics::parse_multiple_choice(answer, *options);
    result.drawn = !chosen.has_value();
    result.unreadable = result.drawn;
    const std::size_t index = chosen ? *chosen : random.choice(options->size());
    if (!result.drawn || !strict) submission = metrics::option_letter(index);
    parsed = submission;
    for (const std::string& letter : references_of(gold)) {
      if (!submission.empty() && letter == submission) result.value = 1;
    }
  } else {
    const auto candidates = metrics::parse_open_response(answer);
    parsed = Value::array();
    for (const metrics::OpenCandidate& candidate : candidates) {
      std::visit([&](const auto& c) { parsed.push_back(c); }, candidate);
    }
    if (!parsed.empty()) submission = python_str(parsed[0]);
    if (metrics::open_answer_is_correct(references_of(gold), candidates)) result.value = 1;
  }
  Value accuracy = Value::object();
  accuracy["id"] = id;
  accuracy["subdomain"] = *subject;
  accuracy["question_type"] = type;
  accuracy["answer"] = gold;
  accuracy["parsed_pred"] = Value::array();
  accuracy["parsed_pred"].push_back(parsed);
  result.metrics["mmmu_acc"] = accuracy;
  result.metrics["mmmu_acc_pass_at_k"] = accuracy;
  result.metrics["submission"][name] = submission;
  return result;
}

Result<SampleScore> score_mme(const Definition& definition, const Value& document,
                              const std::string& answer) {
  EVALCAR_ASSIGN_OR_RETURN(const Value target, column(document, definition.target_column));
  EVALCAR_ASSIGN_OR_RETURN(const Value category, column(document, "category"));
  EVALCAR_ASSIGN_OR_RETURN(const Value id, column(document, "question_id"));
  const auto gold = metrics::mme_gold(python_str(target));
  if (!gold) {
    return make_error(ErrorCode::kCorruption, "column \"" + definition.target_column + "\" is " +
                                                  python_json(target) + ", expected yes or no");
  }
  SampleScore result;
  const std::string label = metrics::mme_label(answer);
  result.value = label == *gold ? 1 : 0;
  result.unreadable = label == "other";
  result.group = python_str(category);
  result.picture = python_str(id);
  result.only_for =
      metrics::is_mme_perception(result.group) ? "mme_perception_score" : "mme_cognition_score";
  Value& logged = result.metrics[result.only_for];
  logged["question_id"] = id;
  logged["category"] = category;
  logged["score"] = result.value;
  return result;
}

/// What every answer would be right by: each text contains an empty one; and a missing one would be
/// the word "None".
Status check_references(const Value& target, const Definition& definition) {
  const auto is_null = [](const Value& item) { return item.is_null(); };
  const auto is_empty = [](const Value& item) {
    return item.is_string() && item.get_ref<const std::string&>().empty();
  };
  const auto any = [&target](const auto& holds) {
    return target.is_array() ? std::ranges::any_of(target, holds) : holds(target);
  };
  if (any(is_null) || (target.is_array() && target.empty()))
    return make_error(ErrorCode::kCorruption, "column \"" + definition.target_column +
                                                  "\" holds no answer to compare with");
  if (definition.scorer.name == "contains" && any(is_empty))
    return make_error(ErrorCode::kCorruption, "column \"" + definition.target_column +
                                                  "\" holds an empty text, which every answer "
                                                  "contains");
  return {};
}

Result<SampleScore> score_by_text(const Definition& definition, const Value& document,
                                  const std::string& answer) {
  EVALCAR_ASSIGN_OR_RETURN(const Value target, column(document, definition.target_column));
  EVALCAR_RETURN_IF_ERROR(check_references(target, definition));
  const std::vector<std::string> references = references_of(target);
  const ScorerDefinition& scorer = definition.scorer;
  SampleScore result;
  if (scorer.name == "contains") {
    result.value = metrics::contains_match(references, answer, scorer.ignore_case);
  } else {
    result.value = metrics::exact_match(references, answer,
                                        {.ignore_case = scorer.ignore_case,
                                         .ignore_punctuation = scorer.ignore_punctuation,
                                         .ignore_numbers = scorer.ignore_numbers});
  }
  result.metrics[scorer.name] = result.value;
  return result;
}

}  // namespace

std::vector<std::string> references_of(const Value& value) {
  std::vector<std::string> result;
  if (value.is_array()) {
    for (const Value& item : value) result.push_back(python_str(item));
  } else if (!value.is_null()) {
    result.push_back(python_str(value));
  }
  return result;
}

Result<SampleScore> score_answer(const Definition& definition, const Value& document,
                                 const std::string& answer, bool strict,
                                 metrics::PythonRandom& random) {
  const std::string& name = definition.scorer.name;
  if (name == "anls") return score_anls(definition, document, answer);
  if (name == "vqa") return score_vqa(definition, document, answer);
  if (name == "mme") return score_mme(definition, document, answer);
  if (name == "mmmu") return score_mmmu(definition, document, answer, strict, random);
  return score_by_text(definition, document, answer);
}

}  // namespace evalcar::tasks
