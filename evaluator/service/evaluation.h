// One evaluation: documents → prompts → requests → answers → scores. Preparing is done once for all
// tasks together, so that the engine can plan over everything; scoring is a pure function of the
// documents and the answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/model_text.h"
#include "evaluator/service/picture_source.h"
#include "evaluator/tasks/task.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// An answer that an earlier attempt left.
struct KnownAnswer {
  tasks::Response response;
  std::string data;  ///< to which data: of others it is none
};
/// By task and document.
using KnownAnswers = std::map<std::pair<std::string, std::int64_t>, KnownAnswer>;

/// What an evaluation tells while it runs. Called on the thread that runs it, but for `advanced`.
struct EvaluationEvents {
  std::function<void(const std::string& stage, const std::string& task, std::int64_t done,
                     std::int64_t total)>
      progress;
  std::function<void(const std::string& task, const tasks::Response& response,
                     const std::string& data)>
      answered;
  std::function<void(const std::string& task, std::int64_t doc_id, const std::string& line)> scored;
  /// At each small step, from any thread.
  std::function<void()> advanced;
};

/// Runs the tasks of `asked` that are not measured yet on the resident weights. A task that cannot
/// be evaluated (data missing, a picture that cannot be read, …) ends with its reason in
/// TaskResult::error and the others stand; the result may have none that does. An error: of the
/// whole evaluation (cancelled, the device, the settings). `engine` holds `weights`.
Result<protocol::EvaluationResult> run_evaluation(
    engine::Engine& engine, const engine::LoadedWeights& weights, const ModelText& model,
    const FileSystem& files, const protocol::Evaluate& asked, const KnownAnswers& known,
    const EvaluationEvents& events, std::stop_token stop);

}  // namespace evalcar::service
