// The agent's loop over one output directory in memory, with an evaluator that does what the test
// says.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "agent/run/agent.h"
#include "tests/unit/agent/fake_evaluator.h"
#include "tests/unit/agent/trainer.h"

namespace evalcar::testing {

inline const std::string kHash(64, 'a');

struct Working : Trainer {
  FakeEvaluatorScript script;
  std::unique_ptr<run::Agent> agent;
  std::size_t heard = 0;
  /// What comes after `load`, by the step of the lease; others are answered with a result.
  std::map<std::int64_t, std::function<void(const protocol::Load&)>> at_load;
  std::function<void(const protocol::Load&)> at_mmmu_load;
  protocol::Load loaded;  ///< the last one

  void begin(run::AgentOptions options = {}) {
    directory.reset();
    settings.watch.output_dir = {"/out"};
    agent = must(
        run::Agent::create(around, settings, options, std::make_unique<FakeEvaluator>(script)));
  }
  void turn(seconds after = seconds(1)) {
    clock.advance(after);
    agent->step();
    for (; heard < script.received.size(); ++heard) answer(script.received[heard]);
  }
  void turns(int count) {
    for (int i = 0; i < count && !agent->finished().has_value(); ++i) turn();
  }
  void say(const protocol::Message& message) { script.pending.emplace_back(message); }
  void say_loaded() {
    protocol::Loaded message;
    message.id = loaded.id;
    message.weights_sha256 = kHash;
    message.dtype = "float32";
    say(message);
  }
  void say_error(const std::string& kind, bool retryable) {
    say(protocol::JobError{.id = loaded.id,
                           .kind = kind,
                           .stage = "preparing",
                           .message = "made up",
                           .retryable = retryable});
  }
  void say_interim() {
    protocol::Interim interim{.id = loaded.id, .weights_sha256 = kHash, .fraction = 0.1};
    interim.tasks.resize(1);
    interim.tasks[0] = {.task = "docvqa_val", .fingerprint = kHash, .n = 20, .documents = 200};
    interim.tasks[0].metrics = {{"anls", "none", 0.5, 0.25, "", "", true}};
    say(interim);
  }
  void say_result() {
    protocol::EvaluationResult result;
    result.id = loaded.id;
    result.weights_sha256 = kHash;
    for (const std::string& task : loaded.settings->tasks) {
      result.tasks.push_back(test::anls_result(task, 0.5, kHash));
    }
    say(result);
  }
  std::int64_t step_of(const protocol::Load& load) const {
    return std::stoll(load.dir.substr(load.dir.rfind('/') + 1));
  }
  void answer(const protocol::Message& message) {
    if (std::holds_alternative<protocol::Hello>(message)) say(protocol::Hello{});
    if (const auto* cancel = std::get_if<protocol::Cancel>(&message)) {
      say(protocol::JobError{.id = cancel->id, .kind = "cancelled", .message = "cancelled"});
    }
    if (const auto* load = std::get_if<protocol::Load>(&message)) {
      loaded = *load;
      const auto act = at_load.find(step_of(*load));
      if (at_mmmu_load && load->settings->tasks == std::vector<std::string>{"mmmu_val"}) {
        at_mmmu_load(*load);
      } else if (act != at_load.end()) {
        act->second(*load);
      } else {
        say_loaded();
      }
    }
    if (std::holds_alternative<protocol::Evaluate>(message)) at_evaluate();
  }
  std::function<void()> at_evaluate = [this] { say_result(); };

  /// {"5 docvqa_val": published, …}
  std::map<std::string, state::EvaluationState> states() const {
    const auto reader = must(state::Reader::open(settings.store.path));
    std::map<std::string, state::EvaluationState> found;
    for (const state::Evaluation& row : must(reader.evaluations())) {
      found[std::to_string(row.step) + " " + row.settings.tasks.front()] = row.state;
    }
    return found;
  }
  std::int64_t loads_of(std::int64_t step) const {
    const auto loads = script.received_of<protocol::Load>();
    return std::ranges::count_if(loads, [&](const auto& load) { return step_of(load) == step; });
  }
};

}  // namespace evalcar::testing
