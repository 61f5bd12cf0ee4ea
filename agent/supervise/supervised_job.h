// A job for an evaluator, and whether what comes back answers it.
//
// An evaluator that answers something else than it was asked, or numbers of other weights than it
// loaded, is not believed in anything any more.
#pragma once

#include <string>
#include <vector>

#include "store/protocol/messages.h"

namespace evalcar::supervise {

struct Job {
  protocol::Load load;  ///< its id is the job's
  protocol::EvaluationSettings settings;
  std::vector<std::string> measured = {};  ///< tasks of `settings` that the result is not to have
  std::vector<double> interim_at = {};     ///< protocol::Evaluate's
  std::string series = {};                 ///< protocol::Evaluate's
};

/// The tasks of a job that have no number yet, as named.
std::vector<std::string> tasks_to_measure(const Job& job);

// What is wrong with an answer, in words; "": it may be one. `weights_sha256`: what was loaded.
std::string mistake_in(const protocol::Loaded& loaded);
std::string mistake_in(const protocol::Prepared& prepared);
std::string mistake_in(const protocol::Interim& interim, const Job& job,
                       const std::string& weights_sha256);
std::string mistake_in(const protocol::EvaluationResult& result, const Job& job,
                       const std::string& weights_sha256);

}  // namespace evalcar::supervise
