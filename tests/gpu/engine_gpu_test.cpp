// The engine on a GPU against transformers on the CPU, from inputs that were prepared beforehand.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/gpu/engine_runs.h"

using namespace evalcar;
using namespace evalcar::testing;

namespace {

// By transformers' scores of step `step`.
double log_likelihood(const PreparedCase& one, std::int64_t vocab, std::size_t step,
                      std::int32_t token) {
  const auto size = static_cast<std::size_t>(vocab);
  const std::span<const float> row = std::span(one.logits).subspan(step * size, size);
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (const float score : row) sum += std::exp(score - largest);
  return row[static_cast<std::size_t>(token)] - largest - std::log(sum);
}

}  // namespace

TEST_CASE("in float32 a GPU gives transformers' tokens, and its scores to 1e-4 of the largest") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  for (const std::int64_t batch_size : {1, 5}) {
    const Answers answers =
        answer(inputs, inputs.requests(),
               {.device = device, .dtype = "float32", .batch_size = batch_size});
    for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
      INFO("request " << i << ", batch " << batch_size);
      // float32 sums in another order.
      CHECK(difference(answers.logits.at(i), inputs.cases[i].logits) <= 1e-4F);
      CHECK(answers.tokens[i] == inputs.cases[i].tokens);
    }
  }
}

TEST_CASE("in bfloat16 a GPU's first scores are as near to float32's as transformers' own are") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const Answers answers =
      answer(inputs, inputs.requests(), {.device = device, .dtype = "bfloat16", .batch_size = 5});
  const double error = first_scores_error(inputs, answers);
  INFO("root mean square error " << error << ", transformers' own " << inputs.bfloat16_error);
  CHECK(error < 2 * inputs.bfloat16_error);
  CHECK(error > 0);
}

TEST_CASE("what a GPU says of tokens that are given is transformers' log-likelihood of them") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const Answers answers =
      answer(inputs, scoring_requests(inputs), {.device = device, .dtype = "float32"});

  for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
    INFO("prompt " << i);
    const PreparedCase& one = inputs.cases[i];
    double expected = 0;
    for (std::size_t step = 0; step < one.tokens.size(); ++step)
      expected += log_likelihood(one, inputs.vocab, step, one.tokens[step]);
    const auto& in_it = answers.scores[2 * i];
    const auto& behind_it = answers.scores[2 * i + 1];
    REQUIRE(in_it.size() == 1);
    REQUIRE(behind_it.size() == 2);
    // As of scores: of the largest.
    const double tolerance = 1e-4 * std::abs(*std::ranges::max_element(one.logits));
    CHECK(std::abs(in_it[0].log_likelihood - expected) <= tolerance);
    CHECK(std::abs(behind_it[0].log_likelihood - expected) <= tolerance);
    CHECK(in_it[0].is_greedy);
    CHECK(behind_it[0].is_greedy);
    CHECK(std::abs(behind_it[1].log_likelihood - log_likelihood(one, inputs.vocab, 0, 0)) <=
          tolerance);
  }
}

TEST_CASE("behind a prefix that requests share a GPU gives the scores that each has alone") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  // Behind each prompt, which all of its questions share if it has 32 tokens. Their lengths are
  // about those of the blocks of 64 queries in which libtorch's fused attention masks a piece
  // (evaluator/kernels/attention.cpp).
  std::vector<engine::Request> requests;
  for (const PreparedCase& one : inputs.cases) {
    for (const std::size_t length : {2U, 64U, 65U, 129U}) {
      engine::Request question = with_bytes(one.request, length, length);
      question.generation.max_new_tokens = 1;
      requests.push_back(std::move(question));
    }
  }
  const engine::EngineOptions together{.device = device, .dtype = "float32"};
  engine::EngineOptions alone = together;
  alone.share_prefixes = false;
  alone.batch_size = 1;

  const Answers shared = answer(inputs, requests, together);
  const Answers expected = answer(inputs, requests, alone);

  for (std::size_t i = 0; i < requests.size(); ++i) {
    INFO("request " << i);
    CHECK(difference(shared.logits.at(i), expected.logits.at(i)) <= 1e-4F);
  }
}
