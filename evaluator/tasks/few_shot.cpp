#include "evaluator/tasks/few_shot.h"

#include <algorithm>
#include <numeric>

#include "evaluator/metrics/python_random.h"
#include "evaluator/tasks/choices.h"
#include "evaluator/tasks/prompt.h"
#include "evaluator/tasks/scorers.h"

namespace evalcar::tasks {
namespace {

// Python compares dicts: the order of the columns does not matter, and a JSON line without a column
// has None there.
nlohmann::json compared(const Value& row) {
  nlohmann::json plain = nlohmann::json::object();
  for (const auto& [name, value] : row.items()) {
    if (!value.is_null()) plain[name] = nlohmann::json(value);
  }
  return plain;
}

std::vector<std::string> media_columns(const DataSet& data) {
  std::vector<std::string> names;
  for (const Column& column : data.columns()) {
    if (column.is_media) names.push_back(column.name);
  }
  return names;
}

class Shots {
 public:
  Shots(const Definition& definition, const DataSet& data, const DataSet& examples,
        std::string_view family, const FewShotOptions& options)
      : definition_(definition),
        data_(data),
        examples_(examples),
        family_(family),
        options_(options),
        media_(media_columns(examples)),
        random_(options.seed) {}

  Result<FewShotTexts> of(std::span<const std::int64_t> doc_ids) {
    FewShotTexts texts;
    for (const std::int64_t doc_id : doc_ids) {
      // The documents are without their pictures here and the examples with them: where the set has
      // any, no example equals the document.
      EVALCAR_ASSIGN_OR_RETURN(std::string text, context(doc_id, media_.empty()));
      texts.inputs.push_back(std::move(text));
    }
    if (options_.turn == FewShotTurn::kLogged) {
      texts.prompts = texts.inputs;
      return texts;
    }
    std::vector<std::size_t> order(doc_ids.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (options_.turn == FewShotTurn::kByInput) {  // UTF-8 sorts as code points do
      std::ranges::stable_sort(order, {},
                               [&](std::size_t d) -> const auto& { return texts.inputs[d]; });
    }
    texts.prompts.resize(doc_ids.size());
    for (const std::size_t d : order) {
      EVALCAR_ASSIGN_OR_RETURN(texts.prompts[d], context(doc_ids[d], true));
    }
    return texts;
  }

 private:
  Result<std::string> context(std::int64_t doc_id, bool takes_out_itself) {
    if (options_.stop.stop_requested()) return make_error(ErrorCode::kCancelled, "stopped");
    if (options_.advanced) options_.advanced();
    EVALCAR_ASSIGN_OR_RETURN(const Value document, data_.row(doc_id));
    std::string text;
    std::int64_t taken = 0;
    for (const std::int64_t example : drawn()) {
      EVALCAR_ASSIGN_OR_RETURN(const Value row, examples_.row(example));
      EVALCAR_ASSIGN_OR_RETURN(const bool same, takes_out_itself
                                                    ? is_document(row, example, document, doc_id)
                                                    : Result<bool>(false));
      if (same || taken == options_.shots) continue;
      auto shown = labelled(row);
      if (!shown)
        return with_context(
            with_context(shown.error(), examples_.place_of(example)),
            "the example that is document " + std::to_string(example) + " of [fewshot]");
      text += (taken++ == 0 ? "" : delimiter()) + *shown;
    }
    auto question = prompt_text(definition_, document, family_);
    if (!question.has_value())
      return with_context(with_context(std::move(question).error(), data_.place_of(doc_id)),
                          "document " + std::to_string(doc_id));
    return text + delimiter() + *question;
  }

  std::vector<std::int64_t> drawn() {
    const auto count = static_cast<std::size_t>(drawn_for(definition_, options_.shots));
    std::vector<std::int64_t> ids;
    if (definition_.fewshot->sampler == "first_n") {
      ids.resize(count);
      std::iota(ids.begin(), ids.end(), std::int64_t{0});
      return ids;
    }
    for (const std::size_t id : random_.sample(static_cast<std::size_t>(examples_.size()), count))
      ids.push_back(static_cast<std::int64_t>(id));
    return ids;
  }

  Result<bool> is_document(const Value& row, std::int64_t example, const Value& document,
                           std::int64_t doc_id) const {
    if (compared(row) != compared(document)) return false;
    for (const std::string& column : media_) {
      const auto& columns = data_.columns();
      const bool both = std::ranges::any_of(
          columns, [&](const Column& c) { return c.is_media && c.name == column; });
      if (!both) return false;
      EVALCAR_ASSIGN_OR_RETURN(const auto own, data_.images(doc_id, column));
      EVALCAR_ASSIGN_OR_RETURN(const auto its, examples_.images(example, column));
      if (own != its) return false;
    }
    return true;
  }

  Result<std::string> labelled(const Value& row) const {
    EVALCAR_ASSIGN_OR_RETURN(const std::string question, prompt_text(definition_, row, family_));
    EVALCAR_ASSIGN_OR_RETURN(const std::string answer, answer_of(row));
    return question + definition_.fewshot->target_delimiter + answer;
  }

  // Of several the first.
  Result<std::string> answer_of(const Value& row) const {
    if (definition_.file.request.kind == RequestKind::kMultipleChoice) {
      EVALCAR_ASSIGN_OR_RETURN(const auto choices, choices_of(definition_, row, family_));
      EVALCAR_ASSIGN_OR_RETURN(const auto right, right_choices(definition_, row, choices));
      return choices[right.front()];
    }
    if (definition_.target_text) return *definition_.target_text;
    const std::string& column = definition_.target_column;
    const auto found = row.find(column);
    const std::vector<std::string> answers =
        references_of(found == row.end() ? Value() : found.value());
    if (answers.empty())
      return make_error(ErrorCode::kCorruption, "column \"" + column + "\" holds no answer");
    return answers.front();
  }

  const std::string& delimiter() const { return definition_.fewshot->delimiter; }

  const Definition& definition_;
  const DataSet& data_;
  const DataSet& examples_;
  const std::string_view family_;
  const FewShotOptions& options_;
  const std::vector<std::string> media_;
  metrics::PythonRandom random_;
};

}  // namespace

bool examples_are_evaluated(const Definition& definition) {
  const FewShotDefinition& fewshot = *definition.fewshot;
  if (!fewshot.files.empty()) return fewshot.files == definition.data_files;
  return definition.data_files.empty() && fewshot.split == definition.file.split;
}

std::int64_t drawn_for(const Definition& definition, std::int64_t shots) {
  return shots + (examples_are_evaluated(definition) ? 1 : 0);
}

Result<FewShotTexts> few_shot_texts(const Definition& definition, const DataSet& data,
                                    const DataSet& examples, std::span<const std::int64_t> doc_ids,
                                    std::string_view model_family, const FewShotOptions& options) {
  if (!definition.fewshot)
    return make_error(ErrorCode::kInternal, definition.file.name + " has no [fewshot]");
  const std::int64_t needed = drawn_for(definition, options.shots);
  if (options.shots < 1 || needed > examples.size())
    return make_error(ErrorCode::kInternal,
                      definition.file.name + " was not opened for so many examples");
  auto texts = Shots(definition, data, examples, model_family, options).of(doc_ids);
  if (!texts.has_value()) return with_context(std::move(texts).error(), definition.file.name);
  return texts;
}

}  // namespace evalcar::tasks
