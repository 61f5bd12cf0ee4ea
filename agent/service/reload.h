// Which changes of the configuration a running agent takes up.
#pragma once

#include <string>
#include <vector>

#include "agent/config/config.h"
#include "store/base/result.h"

namespace evalcar::agent_service {

/// kInvalidArgument, naming each key and both values, where `next` differs from `now` in something
/// that only a start can change: where the agent looks (watch.output_dir), and its memory
/// (store.path). Both are complete_settings()'s. A reload is all or nothing: such a change leaves
/// the whole configuration as it was.
Status check_reload(const config::Settings& now, const config::Settings& next);

/// Each key whose value is another one, for people: "limits.attempts: 3 -> 7". Of one that may hold
/// a secret the name alone.
std::vector<std::string> changes_of(const config::Config& now, const config::Config& next);

}  // namespace evalcar::agent_service
