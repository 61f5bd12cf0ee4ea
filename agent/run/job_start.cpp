#include "agent/run/job_start.h"

#include <algorithm>

namespace evalcar::run {
namespace {

constexpr int kMostTries = 20;

}  // namespace

Result<std::unique_ptr<Job>> start_job(const Surroundings& around, OutputDirectory& directory,
                                       supervise::Supervisor& supervisor,
                                       const config::Settings& settings,
                                       const std::string& program) {
  EVALCAR_ASSIGN_OR_RETURN(auto waiting, directory.waiting());
  for (int tries = 0; tries < kMostTries; ++tries) {
    const schedule::Choice choice = schedule::choose(waiting, settings.evaluate.policy);
    EVALCAR_ASSIGN_OR_RETURN(const bool all, directory.supersede(choice.superseded));
    if (!all || !choice.next.has_value()) break;  // the next choice goes on with it
    EVALCAR_ASSIGN_OR_RETURN(const auto row, directory.store().read().evaluation(*choice.next));
    EVALCAR_ASSIGN_OR_RETURN(auto lease, directory.lease_of(row));
    if (lease.has_value()) {
      EVALCAR_ASSIGN_OR_RETURN(const auto leased, directory.store().read().evaluation(row.id));
      return Job::begin(around, directory, supervisor, settings, leased, std::move(*lease),
                        program);
    }
    std::erase_if(waiting, [&choice](const schedule::Candidate& candidate) {
      return candidate.id == *choice.next ||
             std::ranges::find(choice.superseded, candidate.id) != choice.superseded.end();
    });
  }
  return std::unique_ptr<Job>();
}

}  // namespace evalcar::run
