// Scores of a part of a task, told while the rest is answered. Which documents come first is drawn
// once, from the seed, the task and the documents: it is the same for every checkpoint, so their
// scores of a part can be compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/service/task_job.h"
#include "evaluator/tasks/task.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// A score of fewer documents says nothing about a model.
inline constexpr std::size_t kFewestForInterim = 20;

/// The documents of a task that are answered when so much of it is.
struct Part {
  double fraction = 0;
  std::vector<std::size_t> documents;  ///< indices into the task's documents, ascending
  bool operator==(const Part&) const = default;
};

/// The parts that get a score, each within the next. `units[i]` is the same for documents that
/// share a picture: they come together, since encoding a picture in two runs costs more than their
/// answers do. So a part holds at least its fraction, and may hold more. Parts of fewer than
/// kFewestForInterim documents, and those that are the whole task, are left out.
std::vector<Part> parts_of(std::string_view task, std::int64_t seed,
                           std::span<const std::int64_t> documents,
                           std::span<const std::uint64_t> units, std::span<const double> fractions);

/// For each document of the task the index of the first of `fractions` at which it is answered;
/// fractions.size() where it is in none of the parts.
std::vector<std::size_t> stages_of(std::size_t documents, std::span<const Part> parts,
                                   std::span<const double> fractions);

/// The score of a part, all of whose answers are there, as score() gives it for these documents
/// alone, but for two things. What lmms-eval draws a letter for counts as a miss, since the draws
/// are made in the order of all documents; InterimScore::notes says for how many. And where
/// documents share pictures, the standard error is clustered by them. `options`: of the task.
Result<protocol::InterimScore> interim_score(const TaskJob& job, const Part& part,
                                             tasks::ScoreOptions options);

/// kInvalidArgument unless each is above 0, below 1 and above the one before it.
Status check_fractions(std::span<const double> fractions);

}  // namespace evalcar::service
