#include "evaluator/tasks/task.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "evaluator/metrics/python_random.h"
#include "evaluator/tasks/data_location.h"
#include "evaluator/tasks/data_set.h"
#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/prompt.h"

namespace evalcar::tasks {
namespace {

// Every column that the task file names, with what names it.
std::vector<std::pair<std::string, std::string>> needed_columns(const Definition& definition) {
  std::vector<std::pair<std::string, std::string>> needed;
  const auto add = [&](const std::string& column, const std::string& by) {
    if (!column.empty()) needed.emplace_back(column, by);
  };
  for (const std::string& column : definition.image_columns) add(column, "[columns] images");
  add(definition.target_column, "[columns] target");
  add(definition.cluster_column, "[columns] cluster");
  add(definition.scorer.answers, "[scorer] answers");
  add(definition.scorer.id, "[scorer] id");
  add(definition.file.request.choices_column, "[request] choices");
  add(definition.file.request.messages_column, "[request] messages");
  if (definition.prompt.builder == "mmmu") {
    for (const char* column : {"id", "question", "options", "question_type"})
      add(column, "prompt builder mmmu");
  }
  if (definition.prompt.builder == "mme") add("question", "prompt builder mme");
  if (definition.scorer.name == "mme") {
    for (const char* column : {"question_id", "category"}) add(column, "scorer mme");
  }
  const auto add_template = [&](const Settings& settings) {
    for (const std::string& column : template_columns(definition.prompt.text, settings))
      add(column, "the prompt's {" + column + "}");
    for (const std::string& choice : definition.file.request.choices) {
      for (const std::string& column : template_columns(choice, settings))
        add(column, "the choice's {" + column + "}");
    }
  };
  if (definition.prompt.variants.empty()) add_template({});
  for (const auto& [family, settings] : definition.prompt.variants) add_template(settings);
  return needed;
}

Status check_columns(const Definition& definition, const DataSet& data, const std::string& place) {
  std::vector<std::string> there;
  std::string listed;
  for (const Column& column : data.columns()) {
    there.push_back(column.name);
    listed += (listed.empty() ? "" : ", ") + column.name + " (" + column.type + ")";
  }
  for (const auto& [column, by] : needed_columns(definition)) {
    const auto found = std::find(there.begin(), there.end(), column);
    if (found == there.end()) {
      const std::string near = nearest_word(column, there);
      return make_error(ErrorCode::kInvalidArgument,
                        place + " has no column \"" + column + "\", which " + by + " needs" +
                            (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
                            "; there are " + listed);
    }
    const Column& known = data.columns()[static_cast<std::size_t>(found - there.begin())];
    if (by == "[columns] images") continue;
    if (known.is_media) {
      return make_error(
          ErrorCode::kInvalidArgument,
          place + ": column \"" + column + "\" holds pictures, but " + by + " needs text");
    }
    // Of messages only the parts that are named are read.
    if (!known.has_value && by != "[request] messages") {
      return make_error(ErrorCode::kInvalidArgument,
                        place + ": column \"" + column + "\" is of type " + known.type +
                            ", which " + by +
                            " cannot read; expected a text, a number, a date, a time (of UTC or "
                            "without a zone), or a list or struct of texts and numbers");
    }
  }
  for (const std::string& column : definition.image_columns) {
    const auto& columns = data.columns();
    const auto found = std::find_if(columns.begin(), columns.end(),
                                    [&](const Column& c) { return c.name == column; });
    const std::string& type = found->type;
    const bool possible = found->is_media || type == "string" || type == "large_string" ||
                          type == "null" || type == "object" || type == "list" ||
                          type.starts_with("list<") || type.starts_with("large_list<") ||
                          type.starts_with("fixed_size_list<");
    if (!possible) {
      return make_error(ErrorCode::kInvalidArgument,
                        place + ": column \"" + column + "\" is of type " + type +
                            ", expected pictures: struct<bytes, path>, bytes, or paths");
    }
  }
  return {};
}

class OpenTask final : public Task {
 public:
  /// `examples`: nullptr where there are none, or where they are of `data`.
  OpenTask(Definition definition, std::unique_ptr<DataSet> data, std::unique_ptr<DataSet> examples)
      : definition_(std::move(definition)),
        data_(std::move(data)),
        examples_(std::move(examples)) {}

  const TaskFile& file() const override { return definition_.file; }
  std::int64_t size() const override { return data_->size(); }

  Result<std::vector<std::int64_t>> select(std::optional<double> limit,
                                           std::int64_t offset) const override {
    return select_documents(file().name, size(), limit, offset);
  }

  Result<Prompt> prompt(std::int64_t doc_id, std::string_view model_family) const override {
    return build_prompt(definition_, *data_, doc_id, model_family);
  }

  Result<FewShotTexts> few_shot(std::span<const std::int64_t> doc_ids,
                                std::string_view model_family,
                                const FewShotOptions& options) const override {
    const DataSet& examples = examples_ != nullptr ? *examples_ : *data_;
    return few_shot_texts(definition_, *data_, examples, doc_ids, model_family, options);
  }

  Result<std::string> document_json(std::int64_t doc_id) const override {
    EVALCAR_ASSIGN_OR_RETURN(const Value document, data_->row(doc_id));
    return document.dump(-1, ' ', false, Value::error_handler_t::replace);
  }

  std::string data_fingerprint() const override {
    return data_->fingerprint() + (examples_ != nullptr ? "\n" + examples_->fingerprint() : "");
  }

 private:
  Definition definition_;
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<DataSet> examples_;
};

// The split of [fewshot], which must have the columns of the prompt; nullptr where it is `data`'s.
Result<std::unique_ptr<DataSet>> open_examples(const FileSystem& files,
                                               const Definition& definition,
                                               const std::string& data_dir, const DataSet& data,
                                               std::int64_t shots) {
  std::unique_ptr<DataSet> examples;
  if (shots > 0 && !examples_are_evaluated(definition)) {
    EVALCAR_ASSIGN_OR_RETURN(const auto paths, find_example_files(files, definition, data_dir));
    EVALCAR_ASSIGN_OR_RETURN(examples, open_data_set(files, paths));
    EVALCAR_RETURN_IF_ERROR(check_columns(definition, *examples, paths.front()));
  }
  const std::int64_t size = examples != nullptr ? examples->size() : data.size();
  if (shots > 0 && size < drawn_for(definition, shots)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "evaluate.num_fewshot = " + std::to_string(shots) + " needs " +
                          std::to_string(drawn_for(definition, shots)) +
                          " documents to draw from, and [fewshot] names " + std::to_string(size));
  }
  return examples;
}

}  // namespace

Result<std::unique_ptr<Task>> Task::open(const FileSystem& files, const TaskFile& task_file,
                                         const std::string& data_dir, std::int64_t shots) {
  EVALCAR_ASSIGN_OR_RETURN(Definition definition, definition_of(task_file));
  auto paths = find_data_files(files, definition, data_dir);
  if (!paths) return with_context(paths.error(), task_file.name);
  auto data = open_data_set(files, *paths);
  if (!data) return with_context(data.error(), task_file.name);
  if ((*data)->size() == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      task_file.name + ": " + paths->front() + ": no documents in the data set");
  }
  if (Status fit = check_columns(definition, **data, paths->front()); !fit)
    return with_context(std::move(fit).error(), task_file.name);
  auto examples = open_examples(files, definition, data_dir, **data, shots);
  if (!examples) return with_context(examples.error(), task_file.name);
  return std::unique_ptr<Task>(
      std::make_unique<OpenTask>(std::move(definition), std::move(*data), std::move(*examples)));
}

std::shared_ptr<PythonRandom> make_python_random(std::int64_t seed) {
  return std::make_shared<PythonRandom>(seed);
}

std::vector<std::string> lmms_eval_order(std::vector<std::string> names) {
  std::sort(names.begin(), names.end(), std::greater<>());
  return names;
}

Result<std::vector<std::optional<double>>> resolve_limits(std::optional<double> limit,
                                                          std::span<const std::int64_t> sizes,
                                                          std::string_view compat) {
  std::vector<std::optional<double>> result(sizes.size());
  if (!limit || *limit == -1) return result;
  if (!(*limit > 0)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "limit is " + python_str(Value(*limit)) +
            ", expected a count of at least 1, a fraction between 0 and 1, or -1 for all");
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t of = compat == "strict" ? sizes[i] : sizes[0];
    result[i] = *limit < 1 ? std::ceil(static_cast<double>(of) * *limit) : std::floor(*limit);
  }
  return result;
}

Result<std::vector<std::int64_t>> select_documents(const std::string& task, std::int64_t size,
                                                   std::optional<double> limit,
                                                   std::int64_t offset) {
  if (offset < 0)
    return make_error(ErrorCode::kInvalidArgument,
                      "offset is " + std::to_string(offset) + ", expected 0 or more");
  const std::int64_t own_size[] = {size};
  EVALCAR_ASSIGN_OR_RETURN(const auto resolved, resolve_limits(limit, own_size, "strict"));
  const std::int64_t count = effective_samples(resolved[0], size);
  const std::int64_t end = count > size - std::min(offset, size) ? size : offset + count;
  std::vector<std::int64_t> ids;
  for (std::int64_t id = offset; id < end; ++id) ids.push_back(id);
  if (ids.empty()) {
    return make_error(
        ErrorCode::kInvalidArgument,
        task + ": no documents: offset " + std::to_string(offset) + " of " + std::to_string(size));
  }
  return ids;
}

std::int64_t effective_samples(std::optional<double> limit, std::int64_t size) {
  if (!limit.has_value() || *limit >= static_cast<double>(size)) return size;
  return static_cast<std::int64_t>(*limit);
}

}  // namespace evalcar::tasks
