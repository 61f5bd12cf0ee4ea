// The engine on a GPU against transformers on the CPU, from inputs that were prepared beforehand.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <thread>

#include "store/checkpoint/plan.h"
#include "tests/gpu/prepared_inputs.h"

using namespace evalcar;
using evalcar::testing::PreparedInputs;

namespace {

struct Answers {
  std::vector<std::vector<std::int32_t>> tokens;
  std::map<std::size_t, std::vector<float>> logits;  // (steps, vocab) of each request
};

// An engine with the model loaded that writes the scores of what it runs to `answers`.
std::unique_ptr<engine::Engine> engine_of(const PreparedInputs& inputs, const std::string& device,
                                          const std::string& dtype, std::int64_t batch_size,
                                          Answers& answers) {
  auto engine = load_engine(inputs, {.device = device,
                                     .dtype = dtype,
                                     .batch_size = batch_size,
                                     .observe_logits = [&](std::size_t request, std::int64_t,
                                                           std::span<const float> row) {
                                       auto& rows = answers.logits[request];
                                       rows.insert(rows.end(), row.begin(), row.end());
                                     }});
  if (!engine.has_value()) FAIL(engine.error().message);
  return std::move(engine).value();
}

void run(engine::Engine& engine, const PreparedInputs& inputs, Answers& answers) {
  answers.tokens.assign(inputs.cases.size(), {});
  answers.logits.clear();
  engine::RunEvents events;
  events.answered = [&](std::size_t request, const Result<engine::Answer>& given) {
    if (!given.has_value()) FAIL(given.error().message);
    answers.tokens[request] = given->tokens;
  };
  const auto requests = inputs.requests();
  const Status status = engine.generate(requests, *inputs.images, {}, events, {});
  if (!status.has_value()) FAIL(status.error().message);
}

Answers answer(const PreparedInputs& inputs, const std::string& device, const std::string& dtype,
               std::int64_t batch_size) {
  Answers answers;
  const auto engine = engine_of(inputs, device, dtype, batch_size, answers);
  run(*engine, inputs, answers);
  return answers;
}

PreparedInputs inputs_or_skip(std::string& device) {
  const auto bed = testing::find_test_bed();
  if (!bed.missing.empty()) SKIP(bed.missing);
  device = bed.device;
  auto inputs = PreparedInputs::read(bed.inputs);
  if (!inputs.has_value()) FAIL(inputs.error().message);
  return std::move(inputs).value();
}

}  // namespace

TEST_CASE("in float32 a GPU gives transformers' tokens, and its scores to 1e-4 of the largest") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  for (const std::int64_t batch_size : {1, 5}) {
    const Answers answers = answer(inputs, device, "float32", batch_size);
    for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
      INFO("request " << i << ", batch " << batch_size);
      const auto& expected = inputs.cases[i].logits;
      const auto& got = answers.logits.at(i);
      REQUIRE(got.size() == expected.size());
      float largest = 0, difference = 0;
      for (std::size_t k = 0; k < expected.size(); ++k) {
        largest = std::max(largest, std::abs(expected[k]));
        difference = std::max(difference, std::abs(got[k] - expected[k]));
      }
      CHECK(difference <= 1e-4F * largest);  // float32 sums in another order
      CHECK(answers.tokens[i] == inputs.cases[i].tokens);
    }
  }
}

TEST_CASE("in bfloat16 a GPU's first scores are as near to float32's as transformers' own are") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  const Answers answers = answer(inputs, device, "bfloat16", 5);
  const auto vocab = static_cast<std::size_t>(inputs.vocab);
  double sum = 0;
  for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
    double squares = 0;
    for (std::size_t k = 0; k < vocab; ++k)
      squares += std::pow(answers.logits.at(i)[k] - inputs.cases[i].logits[k], 2);
    sum += std::sqrt(squares / static_cast<double>(vocab));
  }
  const double error = sum / static_cast<double>(inputs.cases.size());
  INFO("root mean square error " << error << ", transformers' own " << inputs.bfloat16_error);
  CHECK(error < 2 * inputs.bfloat16_error);
  CHECK(error > 0);
}

TEST_CASE("the same run on a GPU gives the same bits twice") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  const Answers first = answer(inputs, device, "bfloat16", 5);
  const Answers second = answer(inputs, device, "bfloat16", 5);
  CHECK(first.tokens == second.tokens);
  CHECK(first.logits == second.logits);
}

TEST_CASE("weights that were read while a GPU computed give the same bits, then and afterwards") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  const Answers undisturbed = answer(inputs, device, "bfloat16", 5);
  const RealFileSystem files;
  const auto plan = checkpoint::make_plan(files, inputs.model, checkpoint::WeightsKind::kRegular);
  REQUIRE(plan.has_value());
  Answers answers;
  const auto engine = engine_of(inputs, device, "bfloat16", 5, answers);

  Status ahead;
  {
    const std::jthread reading([&] {
      for (int i = 0; i < 3 && ahead.has_value(); ++i) {
        ahead = engine->prefetch(files, *plan, inputs.model, "auto", {});
      }
    });
    run(*engine, inputs, answers);
  }
  CHECK((ahead.has_value() ? std::string() : ahead.error().message) == "");
  CHECK(answers.logits == undisturbed.logits);
  const auto loaded = engine->load(files, *plan, inputs.model, "auto", {}, {});
  REQUIRE(loaded.has_value());
  CHECK(loaded->prefetched);
  run(*engine, inputs, answers);
  CHECK(answers.tokens == undisturbed.tokens);
  CHECK(answers.logits == undisturbed.logits);
}
