// Several checkpoints on one engine, however the weights came there: read over the last ones, read
// ahead and exchanged, or into memory that was given back before.
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "store/checkpoint/plan.h"
#include "tests/gpu/engine_runs.h"

using namespace evalcar;
using namespace evalcar::testing;

namespace {

// These fail the case.
checkpoint::Plan plan_of(const std::string& folder) {
  auto plan = checkpoint::make_plan(RealFileSystem(), folder, checkpoint::WeightsKind::kRegular);
  if (!plan.has_value()) FAIL(plan.error().message);
  return std::move(plan).value();
}

void load(engine::Engine& engine, const std::string& folder, bool expect_prefetched) {
  const auto loaded = engine.load(RealFileSystem(), plan_of(folder), folder, "auto", {}, {});
  if (!loaded.has_value()) FAIL(loaded.error().message);
  CHECK(loaded->prefetched == expect_prefetched);
}

void prefetch(engine::Engine& engine, const std::string& folder) {
  const Status ahead = engine.prefetch(RealFileSystem(), plan_of(folder), folder, "auto", {});
  if (!ahead.has_value()) FAIL(ahead.error().message);
}

}  // namespace

TEST_CASE(
    "the first checkpoint again gives a GPU's first bits again, whatever was loaded between") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  // Long enough for CUDA graphs, and some that are scored.
  std::vector<engine::Request> requests = inputs.requests();
  for (engine::Request& request : requests) request.generation.max_new_tokens = 10;
  for (engine::Request& request : scoring_requests(inputs)) requests.push_back(std::move(request));
  for (const std::string dtype : {"float32", "bfloat16"}) {
    INFO(dtype);
    Answers answers;
    const auto engine = engine_of(inputs, {.device = device, .dtype = dtype}, answers);
    const auto run_again = [&] {
      run(*engine, requests, *inputs.images, answers);
      return answers;
    };
    const Answers first = run_again();
    load(*engine, inputs.other, false);
    const Answers second = run_again();
    CHECK(second.logits != first.logits);
    CHECK(first_difference(second, first) != "");

    load(*engine, inputs.model, false);  // in place
    CHECK(first_difference(run_again(), first) == "");
    prefetch(*engine, inputs.other);  // between two runs of one checkpoint
    CHECK(first_difference(run_again(), first) == "");
    load(*engine, inputs.other, true);
    CHECK(first_difference(run_again(), second) == "");
    prefetch(*engine, inputs.model);
    load(*engine, inputs.model, true);
    CHECK(first_difference(run_again(), first) == "");
    engine->unload();
    load(*engine, inputs.other, false);
    CHECK(first_difference(run_again(), second) == "");
    engine->unload();
    load(*engine, inputs.model, false);
    CHECK(first_difference(run_again(), first) == "");
  }
}

TEST_CASE("weights that were read while a GPU computed give the same bits, then and afterwards") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const engine::EngineOptions options{.device = device, .dtype = "bfloat16", .batch_size = 5};
  const Answers undisturbed = answer(inputs, inputs.requests(), options);
  const RealFileSystem files;
  const checkpoint::Plan plan = plan_of(inputs.model);
  Answers answers;
  const auto engine = engine_of(inputs, options, answers);

  Status ahead;
  {
    const std::jthread reading([&] {
      for (int i = 0; i < 3 && ahead.has_value(); ++i) {
        ahead = engine->prefetch(files, plan, inputs.model, "auto", {});
      }
    });
    run(*engine, inputs.requests(), *inputs.images, answers);
  }
  CHECK((ahead.has_value() ? std::string() : ahead.error().message) == "");
  CHECK(answers.logits == undisturbed.logits);
  load(*engine, inputs.model, true);
  run(*engine, inputs.requests(), *inputs.images, answers);
  CHECK(answers.tokens == undisturbed.tokens);
  CHECK(answers.logits == undisturbed.logits);
}
