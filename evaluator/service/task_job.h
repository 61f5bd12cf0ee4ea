// One task on its way through an evaluation, and how it is opened: its file, its generation
// settings, its data, the documents that limit and offset choose.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/fingerprint.h"
#include "evaluator/service/model_text.h"
#include "evaluator/service/preparation_cache.h"
#include "evaluator/service/prepared_task.h"
#include "evaluator/service/read_record.h"
#include "evaluator/service/stop_strings.h"
#include "evaluator/service/wrapper.h"
#include "evaluator/tasks/likelihoods.h"
#include "evaluator/tasks/task.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// Why a task has no result.
struct TaskFailure {
  Error error;
  std::string kind;  // as in JobError
};

TaskFailure failed(Error error);
/// The data are at fault: no other checkpoint fares better, and no checkpoint is to blame.
TaskFailure failed_by_data(Error error);

/// A task on its way through the evaluation.
struct TaskJob {
  std::string name;
  std::unique_ptr<ReadRecord> read;  // with a cache: what the task is read through
  std::unique_ptr<tasks::Task> task;
  std::optional<PreparationKey> key;     // with a cache
  std::optional<PreparedTask> recalled;  // from there, less what went to `task`
  std::string data;                      // circumstances_of(task)
  engine::GenerationSettings generation;
  std::string generation_text;          // JSON, for the result's configs
  StopStrings stop_strings;             // that count: none where lmms-eval ignores them
  std::vector<std::int64_t> documents;  // chosen by limit and offset, ascending
  std::int64_t effective = 0;           // lmms-eval's n-samples.effective
  std::int64_t shots = 0;               // examples before each question
  std::vector<std::string> inputs;      // Prompt::input of each
  std::vector<std::string> prompts;     // with shots: the text that the model reads instead
  std::vector<std::vector<std::size_t>> pictures;  // of each, by their place in PictureSource
  std::vector<std::uint64_t> units;                // equal where documents share their pictures
  std::optional<TaskFingerprint> gathered;
  std::string fingerprint;  // once all is prepared
  std::string question;     // TaskIdentity::question, then
  std::vector<tasks::Response> responses;
  /// Of a kind that scores given tokens: of each document what was found for each of its requests;
  /// none where it is still awaited.
  std::vector<std::vector<std::vector<tasks::Likelihood>>> likelihoods;
  std::int64_t draft_tokens = 0;        // that were tried of an earlier checkpoint's answers
  std::int64_t draft_tokens_taken = 0;  // and were right
  std::int64_t cut = 0;                 // documents that are longer than [request] max_length
  std::optional<TaskFailure> failure;
  bool measured = false;  // has its number from an earlier time

  tasks::RequestKind kind() const { return task->file().request.kind; }
  bool wanted() const { return !measured && !failure.has_value(); }
};

/// The error with the task and the document before it, where it does not begin with them already.
Error of_document(Error error, const TaskJob& job, std::size_t document);

/// Opens the tasks that the settings name, in that order; one that cannot be opened has its
/// failure. `common`: common_identity(). `way`: series_way(). `measured`: tasks that have
/// their number already. `cache`: may be nullptr; what is found there is not opened before it has
/// to be; soon after `stop` nothing is found.
std::vector<TaskJob> open_jobs(const FileSystem& files,
                               const protocol::EvaluationSettings& settings,
                               std::span<const std::string> measured, const ModelText& model,
                               const Wrapper& wrapper, const std::string& common,
                               const std::string& way, PreparationCache* cache,
                               const std::stop_token& stop);

/// Each job once, in the order in which lmms-eval takes their tasks.
std::vector<TaskJob*> in_lmms_eval_order(std::vector<TaskJob>& jobs);

}  // namespace evalcar::service
