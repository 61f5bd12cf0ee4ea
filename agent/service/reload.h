// Which changes of the configuration a running agent takes up.
#pragma once

#include "agent/config/settings.h"
#include "store/base/result.h"

namespace evalcar::agent_service {

/// kInvalidArgument, naming the key and both values, where `next` differs from `now` in something
/// that only a start can change: where the agent looks (watch.output_dir), and its memory
/// (store.path). Both are complete_settings()'s. A reload is all or nothing: such a change leaves
/// the whole configuration as it was.
Status check_reload(const config::Settings& now, const config::Settings& next);

}  // namespace evalcar::agent_service
