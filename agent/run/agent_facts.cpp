#include "agent/run/agent_facts.h"

#include <unistd.h>

namespace evalcar::run {

void add_sentence(std::string& all, const std::string& text) {
  if (text.empty() || all.find(text) != std::string::npos) return;
  all += (all.empty() ? "" : "; ") + text;
}

publish::AgentFacts agent_facts(const config::PublishSettings& publish,
                                const std::optional<protocol::Hello>& hello,
                                std::initializer_list<std::string> warnings) {
  publish::AgentFacts facts;
  facts.keep_best = publish.keep_best;
  facts.metric_for_best_model = publish.metric_for_best_model;
  facts.pid = ::getpid();
  if (hello.has_value()) {
    facts.device = hello->device;
    facts.warning = hello->warning;
  }
  for (const std::string& warning : warnings) add_sentence(facts.warning, warning);
  return facts;
}

}  // namespace evalcar::run
