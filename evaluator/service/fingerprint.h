// What an answer and a number depend on beside the weights, as one hash for each task: two
// measurements may be taken for one another only if it is the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/model_text.h"
#include "evaluator/tasks/task_file.h"
#include "store/base/hash.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// SHA-256 of the model's files beside its weights: of their names and contents, and of which are
/// not there. In hexadecimal.
Result<std::string> hash_model_files(const FileSystem& files, const ModelFolders& folders);

/// What all tasks of one evaluation have in common: this program's version, the model beside its
/// weights (hash_model_files(), the dtype that is held), the settings less names of folders and how
/// the work is cut, and the attention that runs. A text for TaskFingerprint.
std::string common_identity(const engine::LoadedWeights& weights,
                            const std::string& model_files_sha256,
                            const protocol::EvaluationSettings& settings,
                            const engine::RunChoice& choice);

/// What parts a series besides what its task asks: the dtype that is computed in, and the base
/// model, which is the configuration's where a checkpoint is not whole by itself.
std::string series_way(const engine::LoadedWeights& weights, const std::string& base_model);

/// What a task is known by, each SHA-256 in hexadecimal.
struct TaskIdentity {
  std::string fingerprint;
  std::string question;  ///< protocol::TaskResult::question
};

/// Gathers one task: first what it is, then each chosen document in order. Contents are hashed, and
/// no times or places of files: data that are only copied or touched keep their fingerprint.
class TaskFingerprint {
 public:
  /// `way`: series_way(). `size`: documents in the split. `data`:
  /// Task::data_fingerprint(). `generation`: effective settings (generation_json()).
  TaskFingerprint(std::string_view common, std::string_view way, const tasks::TaskFile& file,
                  std::int64_t size, std::string_view data, std::string_view generation);
  /// `document`: what it is scored by (Task::document_json()). `pictures`: of the prompt, in order.
  void add(std::int64_t doc_id, std::string_view document, const engine::Request& request,
           const std::vector<Sha256Digest>& pictures);
  /// A task whose random draws come before those of this one.
  void add_earlier(const TaskIdentity& earlier);
  /// The object is used up.
  TaskIdentity finish();

 private:
  void add_part(std::string_view part);
  void add_to_both(std::string_view part);
  void add_scoring(const engine::Scoring& scoring);

  Sha256 hash_;
  Sha256 question_;
};

}  // namespace evalcar::service
