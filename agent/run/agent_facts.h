// What status.json says of the agent itself.
#pragma once

#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "agent/publish/status.h"
#include "store/protocol/messages.h"

namespace evalcar::run {

/// This process, how it ranks, and the device by what the evaluator said of itself (absent: it has
/// not come up yet). `missing_data`: a warning for people, or "". Version, uptime and the exit code
/// are the caller's.
publish::AgentFacts agent_facts(const config::PublishSettings& publish,
                                const std::optional<protocol::Hello>& hello,
                                const std::string& missing_data);

}  // namespace evalcar::run
