#include "evaluator/service/recalled_task.h"

#include <algorithm>
#include <utility>

namespace evalcar::service {

RecalledTask::RecalledTask(tasks::TaskFile file, KnownDocuments known, OpenTask open)
    : file_(std::move(file)), known_(std::move(known)), open_(std::move(open)) {}

Result<std::vector<std::int64_t>> RecalledTask::select(std::optional<double> limit,
                                                       std::int64_t offset) const {
  return tasks::select_documents(file_.name, known_.size, limit, offset);
}

Result<tasks::Prompt> RecalledTask::prompt(std::int64_t doc_id,
                                           std::string_view model_family) const {
  EVALCAR_ASSIGN_OR_RETURN(const tasks::Task* const task, opened());
  return task->prompt(doc_id, model_family);
}

Result<tasks::FewShotTexts> RecalledTask::few_shot(std::span<const std::int64_t> doc_ids,
                                                   std::string_view model_family,
                                                   const tasks::FewShotOptions& options) const {
  EVALCAR_ASSIGN_OR_RETURN(const tasks::Task* const task, opened());
  return task->few_shot(doc_ids, model_family, options);
}

Result<std::string> RecalledTask::document_json(std::int64_t doc_id) const {
  const auto known = std::ranges::lower_bound(known_.ids, doc_id);
  if (known != known_.ids.end() && *known == doc_id)
    return known_.jsons[static_cast<std::size_t>(known - known_.ids.begin())];
  EVALCAR_ASSIGN_OR_RETURN(const tasks::Task* const task, opened());
  return task->document_json(doc_id);
}

Result<const tasks::Task*> RecalledTask::opened() const {
  return task_.with([this](std::unique_ptr<tasks::Task>& task) -> Result<const tasks::Task*> {
    if (task == nullptr) {
      // It was whole when it was prepared: what is wrong now is the data's, not the checkpoint's.
      auto opened = open_();
      if (!opened.has_value())
        return make_error(ErrorCode::kCorruption, std::move(opened).error().message);
      std::unique_ptr<tasks::Task> made = std::move(*opened);
      if (made->data_fingerprint() != known_.data_fingerprint)
        return make_error(ErrorCode::kCorruption,
                          file_.name + ": its data changed since the evaluation was planned");
      task = std::move(made);
    }
    return static_cast<const tasks::Task*>(task.get());
  });
}

}  // namespace evalcar::service
