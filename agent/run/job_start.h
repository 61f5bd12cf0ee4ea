// The next evaluation of one output directory, begun.
#pragma once

#include <memory>
#include <string>

#include "agent/run/job.h"

namespace evalcar::run {

/// Chooses by evaluate.policy among what waits in `directory`, gives up what the choice supersedes,
/// and begins the first whose lease can be had now: one whose files are being rewritten does not
/// keep the others back. `program`: identity_of_program(). Null: nothing can begin now.
Result<std::unique_ptr<Job>> start_job(const Surroundings& around, OutputDirectory& directory,
                                       supervise::Supervisor& supervisor,
                                       const config::Settings& settings,
                                       const std::string& program);

}  // namespace evalcar::run
