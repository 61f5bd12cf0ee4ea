// One evaluation: documents → prompts → requests → answers → scores. Preparing is done once for all
// tasks together, so that the engine can plan over everything; scoring is a pure function of the
// documents and the answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/model_text.h"
#include "evaluator/service/picture_source.h"
#include "evaluator/service/preparation_cache.h"
#include "evaluator/service/previous_answers.h"
#include "evaluator/tasks/task.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// Answers that earlier attempts left, by task, the task's fingerprint then, and document.
using KnownAnswers = std::map<std::tuple<std::string, std::string, std::int64_t>, tasks::Response>;

/// What an evaluation tells while it runs. Called on the thread that runs it, but for `advanced`.
struct EvaluationEvents {
  std::function<void(const std::string& stage, const std::string& task, std::int64_t done,
                     std::int64_t total)>
      progress;
  /// Before the first answer, of the tasks that can be evaluated.
  std::function<void(const std::vector<protocol::TaskFingerprint>& tasks)> prepared;
  std::function<void(const std::string& task, const tasks::Response& response)> answered;
  /// `pictures`: protocol::Scored::pictures.
  std::function<void(const std::string& task, std::int64_t doc_id, const std::string& line,
                     const std::vector<std::string>& pictures)>
      scored;
  /// Where protocol::Evaluate::interim_at asks for it, after the answers that it is of. Without id
  /// and seconds.
  std::function<void(protocol::Interim interim)> interim;
  /// At each small step, from any thread.
  std::function<void()> advanced;
};

/// What is kept from one checkpoint to the next. What it points to outlives the evaluation.
struct Kept {
  KeptPictures pictures;
  PreparationCache* tasks = nullptr;  ///< may be nullptr
};

/// Runs the tasks of `asked` that are not measured yet on the resident weights. A task that cannot
/// be evaluated (data missing, a picture that cannot be read, …) ends with its reason in
/// TaskResult::error and the others stand; the result may have none that does. A known answer is
/// taken if its task still has the same fingerprint: then it is what would be generated again. An
/// error: of the whole evaluation (cancelled, the device, the settings). `engine` holds `weights`.
/// `previous`: answers of earlier checkpoints, which change no number.
Result<protocol::EvaluationResult> run_evaluation(
    engine::Engine& engine, const engine::LoadedWeights& weights, const ModelText& model,
    const FileSystem& files, const Kept& kept, const protocol::Evaluate& asked,
    const KnownAnswers& known, PreviousAnswers& previous, const EvaluationEvents& events,
    std::stop_token stop);

}  // namespace evalcar::service
