// An evaluator that says what the test tells it to, and remembers what it was told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/supervise/evaluator.h"

namespace evalcar::testing {

/// What a FakeEvaluator shares with its test: the Supervisor owns the evaluator itself.
struct FakeEvaluatorScript {
  std::vector<protocol::Message> received;
  std::vector<supervise::EvaluatorEvent> pending;
  bool running = false;
  int starts = 0;
  int kills = 0;
  bool lingers = false;  ///< it takes its time to die
  std::string last_words;
  std::optional<Error> start_error;

  template <typename T>
  std::vector<T> received_of() const {
    std::vector<T> found;
    for (const auto& message : received) {
      if (const T* const m = std::get_if<T>(&message)) found.push_back(*m);
    }
    return found;
  }
};

class FakeEvaluator final : public supervise::Evaluator {
 public:
  explicit FakeEvaluator(FakeEvaluatorScript& script) : script_(script) {}
  Status start() override {
    ++script_.starts;
    if (script_.start_error.has_value()) return *script_.start_error;
    script_.running = true;
    return {};
  }
  bool running() const override { return script_.running; }
  std::int64_t pid() const override { return script_.running ? 4711 : 0; }
  void send(const protocol::Message& message) override { script_.received.push_back(message); }
  std::vector<supervise::EvaluatorEvent> poll() override {
    if (script_.lingers) return {};
    auto events = std::move(script_.pending);
    script_.pending.clear();
    for (const auto& event : events) {
      if (std::holds_alternative<supervise::Exited>(event)) script_.running = false;
    }
    return events;
  }
  std::string last_words() const override { return script_.last_words; }
  void kill() override {
    ++script_.kills;
    script_.pending.emplace_back(supervise::Exited{"signal 9 (Killed)", {}, 9});
  }
  void add_descriptors(std::vector<pollfd>&) const override {}

 private:
  FakeEvaluatorScript& script_;
};

}  // namespace evalcar::testing
