// From the configuration to what an evaluation is identified by.
#pragma once

#include "agent/config/settings.h"
#include "agent/supervise/supervisor.h"
#include "store/base/file_system.h"
#include "store/protocol/messages.h"

namespace evalcar::run {

/// What the evaluator is told of an evaluation: the part of the configuration that says what is
/// measured, and how.
protocol::EvaluationSettings evaluation_settings(const config::EvaluateSettings& evaluate);

/// The command line of the evaluator, less its descriptor.
std::vector<std::string> evaluator_command(const std::string& program,
                                           const config::EvaluateSettings& evaluate,
                                           const config::LimitSettings& limits);

/// The time-outs of the stages, by limits.stage_timeouts.
supervise::SupervisorOptions supervisor_options(const config::LimitSettings& limits);

/// How the program is asked whether the tasks' data are there.
std::vector<std::string> check_command(const std::string& program,
                                       const config::EvaluateSettings& evaluate);
/// A text that changes when the program is replaced; "" while it is not there.
std::string identity_of_program(const FileSystem& files, const std::string& program);

}  // namespace evalcar::run
