#include "agent/supervise/supervised_job.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace evalcar::supervise {
namespace {

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Each task that was asked for exactly once, and no other.
bool same_tasks(const std::vector<protocol::TaskResult>& results, std::vector<std::string> asked) {
  std::vector<std::string> given;
  for (const protocol::TaskResult& result : results) given.push_back(result.task);
  std::sort(given.begin(), given.end());
  std::sort(asked.begin(), asked.end());
  return given == asked;
}

/// Each task that has a result says of what it is, and of which question, if it tells that.
bool all_named(const std::vector<protocol::TaskResult>& results) {
  return std::all_of(results.begin(), results.end(), [](const protocol::TaskResult& result) {
    return !result.error.empty() || (is_sha256(result.fingerprint) &&
                                     (result.question.empty() || is_sha256(result.question)));
  });
}

}  // namespace

std::vector<std::string> tasks_to_measure(const Job& job) {
  std::vector<std::string> rest = job.settings.tasks;
  std::erase_if(rest, [&job](const std::string& task) {
    return std::find(job.measured.begin(), job.measured.end(), task) != job.measured.end();
  });
  return rest;
}

std::string mistake_in(const protocol::Loaded& loaded) {
  return is_sha256(loaded.weights_sha256) ? "" : "the evaluator sent \"loaded\" without a hash";
}

std::string mistake_in(const protocol::Prepared& prepared) {
  const bool named = std::all_of(prepared.tasks.begin(), prepared.tasks.end(),
                                 [](const auto& task) { return is_sha256(task.sha256); });
  return named ? "" : "the evaluator sent \"prepared\" without fingerprints";
}

std::string mistake_in(const protocol::Interim& interim, const Job& job,
                       const std::string& weights_sha256) {
  const std::vector<std::string> asked = tasks_to_measure(job);
  std::set<std::string> seen;
  const auto fits = [&](const protocol::InterimScore& score) {
    return std::find(asked.begin(), asked.end(), score.task) != asked.end() &&
           seen.insert(score.task).second && is_sha256(score.fingerprint) && score.n > 0 &&
           score.n < score.documents;
  };
  const bool is_of_a_part = interim.fraction > 0 && interim.fraction < 1;
  if (interim.weights_sha256 == weights_sha256 && is_of_a_part && !interim.tasks.empty() &&
      std::all_of(interim.tasks.begin(), interim.tasks.end(), fits)) {
    return "";
  }
  return "the evaluator sent an interim score of other weights or of other tasks than those that "
         "were asked for";
}

std::string mistake_in(const protocol::EvaluationResult& result, const Job& job,
                       const std::string& weights_sha256) {
  if (result.weights_sha256 != weights_sha256) {
    return "the evaluator measured weights " + result.weights_sha256.substr(0, 16) +
           "…, but had loaded " + weights_sha256.substr(0, 16) + "…";
  }
  if (!same_tasks(result.tasks, tasks_to_measure(job))) {
    return "the evaluator's result is not of the tasks asked for";
  }
  if (!all_named(result.tasks)) {
    return "the evaluator's result has a task without a fingerprint";
  }
  return "";
}

}  // namespace evalcar::supervise
