// The prompt of one document: what lmms-eval's chat path would hand to the model.
#pragma once

#include <string_view>

#include "evaluator/tasks/data_set.h"
#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/task.h"

namespace evalcar::tasks {

/// The settings that a model family uses: its own variant alone, else "default"; empty without
/// variants.
const Settings& variant_of(const PromptDefinition& prompt, std::string_view model_family);

/// The names that a template uses, without those of `settings`: columns.
std::vector<std::string> template_columns(std::string_view text, const Settings& settings);

/// The text of a template. {name} is a setting of the variant or a column of the document;
/// {name|filter} passes it through capitalize, lower, upper, strip, join (a list, with ", ") or
/// letters (a list as "A. …" lines); {{ and }} are braces.
Result<std::string> render_template(std::string_view text, const Settings& settings,
                                    const Value& document);

/// The text part of a document's prompt alone: lmms-eval's doc_to_text.
Result<std::string> prompt_text(const Definition& definition, const Value& document,
                                std::string_view model_family);

/// kCorruption names the document and what is wrong with it.
Result<Prompt> build_prompt(const Definition& definition, const DataSet& data, std::int64_t doc_id,
                            std::string_view model_family);

}  // namespace evalcar::tasks
