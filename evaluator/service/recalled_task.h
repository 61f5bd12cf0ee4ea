// A task whose documents are known without its data.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "evaluator/tasks/task.h"
#include "store/base/guarded.h"
#include "store/base/result.h"

namespace evalcar::service {

/// Opens the data.
using OpenTask = std::function<Result<std::unique_ptr<tasks::Task>>()>;

/// What is known of a task.
struct KnownDocuments {
  std::int64_t size = 0;  ///< of the split
  std::string data_fingerprint;
  std::vector<std::int64_t> ids;   ///< ascending
  std::vector<std::string> jsons;  ///< of each, Task::document_json()
};

/// Answers from what is known. The data are opened for what is not: a prompt (whose pictures may
/// have to be decoded again), another document; kCorruption if they are other data by then.
/// Thread-safe, as `open` is called once at a time.
class RecalledTask final : public tasks::Task {
 public:
  RecalledTask(tasks::TaskFile file, KnownDocuments known, OpenTask open);

  const tasks::TaskFile& file() const override { return file_; }
  std::int64_t size() const override { return known_.size; }
  Result<std::vector<std::int64_t>> select(std::optional<double> limit,
                                           std::int64_t offset) const override;
  Result<tasks::Prompt> prompt(std::int64_t doc_id, std::string_view model_family) const override;
  Result<tasks::FewShotTexts> few_shot(std::span<const std::int64_t> doc_ids,
                                       std::string_view model_family,
                                       const tasks::FewShotOptions& options) const override;
  Result<std::string> document_json(std::int64_t doc_id) const override;
  std::string data_fingerprint() const override { return known_.data_fingerprint; }

 private:
  Result<const tasks::Task*> opened() const;

  const tasks::TaskFile file_;
  const KnownDocuments known_;
  const OpenTask open_;
  mutable Guarded<std::unique_ptr<tasks::Task>> task_;  // once it is opened, it stays
};

}  // namespace evalcar::service
