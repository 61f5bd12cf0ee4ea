// What status.json says of the agent itself.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "agent/publish/status.h"
#include "store/protocol/messages.h"

namespace evalcar::run {

/// Adds a sentence to others, with "; " between; "" and what is among them already adds nothing.
void add_sentence(std::string& all, const std::string& text);

/// This process, how it ranks, and the device by what the evaluator said of itself (absent: it has
/// not come up yet). `warnings`: more for people; "" is none. Version, uptime and the exit code are
/// the caller's.
publish::AgentFacts agent_facts(const config::PublishSettings& publish,
                                const std::optional<protocol::Hello>& hello,
                                std::initializer_list<std::string> warnings);

}  // namespace evalcar::run
