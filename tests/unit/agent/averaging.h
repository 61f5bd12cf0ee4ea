// A trainer whose checkpoints' averages are wanted.
#pragma once

#include <string>
#include <vector>

#include "store/checkpoint/averaged.h"
#include "tests/unit/agent/trainer.h"

namespace evalcar::testing {

struct Averaging : Trainer {
  explicit Averaging(std::size_t last) {
    settings.evaluate.weights = {"regular"};
    settings.evaluate.average_last = static_cast<int>(last);
    start();
  }
  void save(std::int64_t step) { Trainer::save(step, static_cast<char>('a' + step)); }
  void turns(int count) {
    for (int i = 0; i < count; ++i) must(turn());
  }
  void publish_all() {
    for (const auto& row : must(directory->store().read().evaluations({.kind = "regular"}))) {
      if (row.state == state::EvaluationState::kLeased) publish(row, 0.5);
    }
  }
  std::vector<state::Evaluation> averages() const {
    return must(directory->store().read().evaluations({.kind = "average"}));
  }
  std::vector<std::string> members(const state::Evaluation& row) const {
    return must(checkpoint::read_members(files, row.lease_path));
  }
  /// A look takes a turn for every few folders.
  void slow_down() {
    files.on_call([this](const test::Call& call) {
      if (call.operation == "list") clock.advance(std::chrono::milliseconds(100));
    });
  }
};

}  // namespace evalcar::testing
