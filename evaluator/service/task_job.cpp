#include "evaluator/service/task_job.h"

#include <algorithm>

#include "evaluator/service/generation.h"
#include "evaluator/service/recalled_task.h"
#include "evaluator/tasks/data_check.h"
#include "evaluator/tasks/data_identity.h"

namespace evalcar::service {
namespace {

class TaskOpener {
 public:
  TaskOpener(const FileSystem& files, const protocol::EvaluationSettings& settings,
             std::span<const std::string> measured, const ModelText& model, const Wrapper& wrapper,
             const std::string& common, const std::string& way, PreparationCache* cache,
             const std::stop_token& stop)
      : files_(files),
        settings_(settings),
        measured_(measured),
        model_(model),
        wrapper_(wrapper),
        common_(common),
        way_(way),
        cache_(cache),
        stop_(stop) {}

  std::vector<TaskJob> open_all() {
    std::vector<TaskJob> jobs;
    for (const std::string& name : settings_.tasks) {
      TaskJob& job = jobs.emplace_back();
      job.name = name;
      job.measured = std::ranges::find(measured_, name) != measured_.end();
    }
    // A fractional limit is resolved on the task that lmms-eval opens first, not on the one that
    // was named first. Without that one nobody knows which documents it chooses of the others.
    std::vector<TaskJob*> opened;
    std::vector<std::int64_t> sizes;
    std::string undecided;
    for (TaskJob* const job : in_lmms_eval_order(jobs)) {
      job->failure = undecided.empty()
                         ? open_task(*job)
                         : failed_by_data(make_error(ErrorCode::kUnavailable, undecided));
      if (undecided.empty() && opened.empty() && job->failure.has_value() && is_shared_fraction()) {
        undecided =
            "evaluate.limit is a fraction of the documents of " + job->name +
            " (as lmms-eval takes it), and those cannot be counted: " + job->failure->error.message;
      }
      if (job->failure.has_value()) continue;
      opened.push_back(job);
      sizes.push_back(job->task->size());
    }
    const auto limits = tasks::resolve_limits(settings_.limit, sizes, settings_.compat);
    for (std::size_t i = 0; i < opened.size(); ++i) {
      const Status chosen =
          limits.has_value() ? choose_documents(*opened[i], (*limits)[i]) : Status(limits.error());
      if (!chosen.has_value()) opened[i]->failure = failed(chosen.error());
    }
    return jobs;
  }

 private:
  bool is_shared_fraction() const {
    const std::optional<double> limit = settings_.limit;
    return limit.has_value() && *limit > 0 && *limit < 1 && settings_.compat == "lmms-eval";
  }

  std::optional<TaskFailure> open_task(TaskJob& job) {
    auto file = tasks::find_task(files_, settings_.tasks_dir, job.name);
    if (!file.has_value()) {  // the agent knew it: its file went, or was changed
      return TaskFailure{std::move(file).error(),
                         std::string(error_code_name(ErrorCode::kInvalidArgument))};
    }
    if (Status settled = settle_generation(job, *file); !settled.has_value())
      return failed(std::move(settled).error());
    recall(job, *file);
    if (job.task == nullptr) {
      const FileSystem& files = job.read != nullptr ? *job.read : files_;
      tasks::OpenedData data = tasks::open_task_data(files, *file, settings_);
      if (data.task == nullptr) return TaskFailure{std::move(data.error), std::move(data.kind)};
      job.task = std::move(data.task);
      job.shots = data.shots;
    }
    job.data = tasks::circumstances_of(*job.task);
    job.gathered.emplace(common_, way_, *file, job.task->size(), job.task->data_fingerprint(),
                         job.generation_text);
    return std::nullopt;
  }

  /// The task without its data, if it is in the cache.
  void recall(TaskJob& job, const tasks::TaskFile& file) const {
    // A prompt that shows the time is another one each time.
    if (cache_ == nullptr || model_.chat_template.tells_time()) return;
    const auto data = tasks::identify_data(files_, file, settings_);
    if (!data.has_value()) return;
    job.key = cache_->key_of(*data, common_, job.generation_text);
    job.read = cache_->record(files_);
    job.recalled = cache_->find(*job.key, files_, stop_);
    if (!job.recalled.has_value()) return;
    job.shots = job.recalled->shots;
    KnownDocuments known{.size = job.recalled->size,
                         .data_fingerprint = job.recalled->data_fingerprint};
    for (PreparedDocument& document : job.recalled->documents) {
      known.ids.push_back(document.doc_id);
      known.jsons.push_back(std::move(document.json));
    }
    const auto open = [&read = *job.read, file,
                       settings = settings_]() -> Result<std::unique_ptr<tasks::Task>> {
      tasks::OpenedData opened = tasks::open_task_data(read, file, settings);
      if (opened.task == nullptr) return std::move(opened.error);
      return std::move(opened.task);
    };
    job.task = std::make_unique<RecalledTask>(file, std::move(known), open);
  }

  Status settle_generation(TaskJob& job, const tasks::TaskFile& file) const {
    EVALCAR_ASSIGN_OR_RETURN(const tasks::GenerationDefaults defaults,
                             apply_gen_kwargs(file.generation, settings_.gen_kwargs));
    EVALCAR_ASSIGN_OR_RETURN(
        job.generation,
        effective_generation(defaults, settings_, model_.generation, model_.tokenizer, wrapper_));
    job.generation_text = generation_json(job.generation, defaults);
    if (settings_.compat == "strict") job.stop_strings = StopStrings(defaults.until);
    return {};
  }

  Status choose_documents(TaskJob& job, std::optional<double> limit) const {
    EVALCAR_ASSIGN_OR_RETURN(job.documents, job.task->select(limit, settings_.offset));
    job.effective = tasks::effective_samples(limit, job.task->size());
    if (job.documents.empty()) {
      return make_error(ErrorCode::kInvalidArgument, job.name + ": no documents: the split has " +
                                                         std::to_string(job.task->size()) +
                                                         ", limit and offset choose none of them");
    }
    const auto recalled_ids = [](const PreparedDocument& document) { return document.doc_id; };
    if (job.recalled.has_value() &&
        !std::ranges::equal(job.recalled->documents, job.documents, {}, recalled_ids))
      job.recalled.reset();  // a fraction of another task's documents: it is prepared anew
    job.responses.resize(job.documents.size());
    job.inputs.resize(job.documents.size());
    job.pictures.resize(job.documents.size());
    job.units.resize(job.documents.size());
    job.likelihoods.resize(job.documents.size());
    return {};
  }

  const FileSystem& files_;
  const protocol::EvaluationSettings& settings_;
  const std::span<const std::string> measured_;
  const ModelText& model_;
  const Wrapper& wrapper_;
  const std::string& common_;
  const std::string& way_;
  PreparationCache* const cache_;
  const std::stop_token& stop_;
};

}  // namespace

TaskFailure failed(Error error) {
  std::string kind(error_code_name(error.code));
  return {std::move(error), std::move(kind)};
}

TaskFailure failed_by_data(Error error) { return {std::move(error), std::string(protocol::kData)}; }

Error of_document(Error error, const TaskJob& job, std::size_t document) {
  const std::string place = job.name + ": document " + std::to_string(job.documents[document]);
  // Of a picture its name begins so: "own: document 3, picture 1".
  if (error.message.starts_with(place + ":") || error.message.starts_with(place + ","))
    return error;
  return with_context(std::move(error), place);
}

std::vector<TaskJob> open_jobs(const FileSystem& files,
                               const protocol::EvaluationSettings& settings,
                               std::span<const std::string> measured, const ModelText& model,
                               const Wrapper& wrapper, const std::string& common,
                               const std::string& way, PreparationCache* cache,
                               const std::stop_token& stop) {
  return TaskOpener(files, settings, measured, model, wrapper, common, way, cache, stop).open_all();
}

std::vector<TaskJob*> in_lmms_eval_order(std::vector<TaskJob>& jobs) {
  std::vector<std::string> names;
  for (const TaskJob& job : jobs) names.push_back(job.name);
  std::vector<TaskJob*> ordered;
  for (const std::string& name : tasks::lmms_eval_order(names)) {
    for (TaskJob& job : jobs) {
      const bool there = std::find(ordered.begin(), ordered.end(), &job) != ordered.end();
      if (job.name == name && !there) ordered.push_back(&job);
    }
  }
  return ordered;
}

}  // namespace evalcar::service
