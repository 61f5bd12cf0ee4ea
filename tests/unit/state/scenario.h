// A store in a temporary folder, and short words for the way of an evaluation. Also used by the
// tests of agent/publish.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <vector>

#include "store/state/store.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/temporary_directory.h"

namespace evalcar::test {

/// The value, or a failed test that shows the error.
template <typename T>
T must(Result<T> result) {
  if (!result.has_value()) FAIL(result.error().message);
  return std::move(result).value();
}
inline void must(const Status& status) {
  if (!status.has_value()) FAIL(status.error().message);
}

inline protocol::TaskResult anls_result(const std::string& task, double value,
                                        const std::string& fingerprint = "f1") {
  protocol::TaskResult result;
  result.task = task;
  result.version = "Yaml";
  result.fingerprint = fingerprint;
  result.alias = task;
  result.n = 2;
  result.n_original = 10;
  result.n_effective = 3;
  result.metrics = {{"anls", "none", value, 0.25, "", "", true}};
  result.lmms_results = R"({"alias":")" + task + R"(","anls,none":)" + std::to_string(value) +
                        R"(,"anls_stderr,none":0.25})";
  result.lmms_config = R"({"task":")" + task + R"("})";
  result.notes = "{}";
  return result;
}

struct Scenario {
  TemporaryDirectory folder;
  FakeClock clock;
  RealFileSystem files;
  std::unique_ptr<state::Store> store;
  state::Run run;
  std::string question = {};  ///< that each result is of

  Scenario() { reopen(); }
  std::string db() const { return folder / "db/run.db"; }
  void reopen() {
    store.reset();
    store = must(state::Store::open(files, clock, db()));
    run = must(store->ensure_run("run-01234567", "/out/run", 1, 10));
  }

  static state::CheckpointObservation seen(std::int64_t step, const std::string& fingerprint,
                                           std::uint64_t inode = 0) {
    state::CheckpointObservation observation;
    observation.name = "checkpoint-" + std::to_string(step);
    observation.path = "/out/run/" + observation.name;
    observation.step = step;
    observation.layout = "hugging_face";
    observation.device = 1;
    observation.inode = inode != 0 ? inode : 1000 + static_cast<std::uint64_t>(step);
    observation.kinds = {{"regular", !fingerprint.empty(),
                          fingerprint.empty() ? "model.safetensors is short" : "", fingerprint, 4,
                          5}};
    return observation;
  }
  state::Evaluation plan(std::int64_t step, const std::vector<std::string>& tasks = {"docvqa_val"},
                         const std::string& kind = "regular") {
    const auto observed =
        must(store->observe_checkpoint(run.id, seen(step, "f" + std::to_string(step))));
    return plan_for(observed.checkpoint.id, tasks, kind);
  }
  state::Evaluation plan_for(std::int64_t checkpoint_id,
                             const std::vector<std::string>& tasks = {"docvqa_val"},
                             const std::string& kind = "regular") {
    state::NewEvaluation wanted;
    wanted.checkpoint_id = checkpoint_id;
    wanted.kind = kind;
    wanted.settings.tasks = tasks;
    return must(store->plan_evaluation(wanted));
  }
  /// Of other settings than plan(): with evaluate.limit.
  state::Evaluation plan_limited(std::int64_t step, double limit,
                                 const std::string& kind = "regular") {
    const auto observed =
        must(store->observe_checkpoint(run.id, seen(step, "f" + std::to_string(step))));
    state::NewEvaluation wanted{observed.checkpoint.id, kind, "auto", limited(limit)};
    return must(store->plan_evaluation(wanted));
  }
  static protocol::EvaluationSettings limited(double limit) {
    protocol::EvaluationSettings settings;
    settings.tasks = {"docvqa_val"};
    if (limit > 0) settings.limit = limit;
    return settings;
  }
  /// The configuration is plan()'s, or for a limit above 0 plan_limited()'s.
  void configure(double limit = 0) {
    const std::string sha256 = state::settings_sha256(limited(limit), "auto");
    must(store->set_configured(run.id, {sha256, sha256}));
  }
  /// Takes a fresh evaluation along the main way until it is in `until`.
  void bring(std::int64_t id, state::EvaluationState until, const std::string& weights = "w1",
             double value = 0.5, const std::string& fingerprint = "f1") {
    using enum state::EvaluationState;
    const state::Evaluation evaluation = get(id);
    if (until == kFound) return;
    must(store->transition(id, kComplete));
    if (until == kComplete) return;
    must(store->mark_leased(id, "/out/run/_evalcar/leases/x"));
    if (until == kLeased) return;
    must(store->begin_attempt(id, "cpu"));
    if (until == kLoading) return;
    must(store->record_loaded(id, weights, "float32"));
    if (until == kEvaluating) return;
    protocol::EvaluationResult result;
    result.weights_sha256 = weights;
    result.seconds = 12.5;
    std::vector<protocol::Scored> lines;
    for (const std::string& task : evaluation.settings.tasks) {
      result.tasks.push_back(anls_result(task, value, fingerprint));
      result.tasks.back().question = question;
      for (std::int64_t doc = 0; doc < 2; ++doc) {
        lines.push_back({"", task, doc,
                         R"({"doc_id": )" + std::to_string(doc) +
                             R"(, "target": "['A']", "filtered_resps": "A", "anls": )" +
                             std::to_string(value) + "}",
                         fingerprint});
      }
    }
    must(store->record_samples(id, lines));
    clock.advance(std::chrono::seconds{1});
    must(store->record_result(id, result));
  }
  state::Evaluation get(std::int64_t id) const { return must(store->read().evaluation(id)); }
  state::EvaluationState state_of(std::int64_t id) const { return get(id).state; }
};

}  // namespace evalcar::test
