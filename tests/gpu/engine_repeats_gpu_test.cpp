// The same asked twice: by another engine, by the same one, and after an interruption.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/gpu/engine_runs.h"

using namespace evalcar;
using namespace evalcar::testing;

namespace {

/// Greedy answers, drawn ones, and given tokens that are scored.
std::vector<engine::Request> all_kinds(const PreparedInputs& inputs) {
  std::vector<engine::Request> requests = inputs.requests();
  for (engine::Request& request : inputs.requests()) {
    request.generation.temperature = 1;
    request.generation.seed = 7;
    request.stream = requests.size();
    requests.push_back(std::move(request));
  }
  for (engine::Request& request : requests) request.generation.max_new_tokens = 10;
  for (engine::Request& request : scoring_requests(inputs)) requests.push_back(std::move(request));
  return requests;
}

}  // namespace

TEST_CASE("the same run on a GPU gives the same bits twice") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const engine::EngineOptions options{.device = device, .dtype = "bfloat16", .batch_size = 5};
  const Answers first = answer(inputs, inputs.requests(), options);
  const Answers second = answer(inputs, inputs.requests(), options);
  CHECK(first.tokens == second.tokens);
  CHECK(first.logits == second.logits);
}

TEST_CASE("one engine on a GPU gives the same bits twice: answers, draws, scores, kept pictures") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const auto requests = all_kinds(inputs);
  for (const std::string dtype : {"float32", "bfloat16"}) {
    INFO(dtype);
    Answers answers;
    const auto engine = engine_of(inputs,
                                  {.device = device,
                                   .dtype = dtype,
                                   .batch_size = 5,
                                   .encoded_pictures_bytes = std::uint64_t{64} << 20U},
                                  answers);
    run(*engine, requests, *inputs.images, answers);
    const Answers first = answers;
    run(*engine, requests, *inputs.images, answers);
    CHECK(first_difference(answers, first) == "");
    CHECK((answers.pictures_reused > 0) == (inputs.images->size() > 0));
    const auto drawn = first.tokens.begin() + static_cast<std::ptrdiff_t>(inputs.cases.size());
    CHECK_FALSE(std::equal(first.tokens.begin(), drawn, drawn));
  }
}

TEST_CASE("what a run on a GPU still lacks after an interruption gets the bits of a whole run") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  auto requests = all_kinds(inputs);
  for (const std::string dtype : {"float32", "bfloat16"}) {
    INFO(dtype);
    for (engine::Request& request : requests) request.answered_before = false;
    Answers answers;
    const auto engine = engine_of(
        inputs, {.device = device, .dtype = dtype, .batch_size = 3, .draft_rows = 0}, answers);
    run(*engine, requests, *inputs.images, answers);
    const Answers whole = answers;
    for (std::size_t i = 0; i < requests.size() / 2; ++i)
      requests[whole.order[i]].answered_before = true;
    run(*engine, requests, *inputs.images, answers);
    CHECK(answers.order.size() == requests.size() - requests.size() / 2);
    for (const std::size_t i : answers.order) {
      INFO("request " << i);
      CHECK_FALSE(requests[i].answered_before);
      CHECK(answers.tokens[i] == whole.tokens[i]);
      CHECK(same_scores(answers.scores[i], whole.scores[i]));
      if (!requests[i].scoring) CHECK(answers.logits.at(i) == whole.logits.at(i));
    }
  }
}
