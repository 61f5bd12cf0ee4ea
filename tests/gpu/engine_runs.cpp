#include "tests/gpu/engine_runs.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <utility>

namespace evalcar::testing {

bool same_scores(const std::vector<engine::Score>& a, const std::vector<engine::Score>& b) {
  return std::ranges::equal(a, b, [](const engine::Score& x, const engine::Score& y) {
    return x.log_likelihood == y.log_likelihood && x.tokens == y.tokens &&
           x.is_greedy == y.is_greedy;
  });
}

std::string first_difference(const Answers& got, const Answers& expected) {
  if (got.tokens.size() != expected.tokens.size()) return "another number of requests";
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
    const std::string which = "request " + std::to_string(i) + " has other ";
    if (got.tokens[i] != expected.tokens[i]) return which + "tokens";
    if (!same_scores(got.scores[i], expected.scores[i])) return which + "scores";
    const auto a = got.logits.find(i), b = expected.logits.find(i);
    const bool one_lacks = (a == got.logits.end()) != (b == expected.logits.end());
    if (one_lacks || (b != expected.logits.end() && a->second != b->second))
      return which + "logits";
  }
  return "";
}

PreparedInputs inputs_or_skip(std::string& device) {
  const auto bed = find_test_bed();
  if (!bed.missing.empty()) SKIP(bed.missing);
  device = bed.device;
  auto inputs = PreparedInputs::read(bed.inputs + std::string(GENERATE("", "/text")));
  if (!inputs.has_value()) FAIL(inputs.error().message);
  return std::move(inputs).value();
}

std::unique_ptr<engine::Engine> engine_of(const PreparedInputs& inputs,
                                          engine::EngineOptions options, Answers& answers) {
  options.observe_logits = [&](std::size_t request, std::int64_t, std::span<const float> row) {
    auto& rows = answers.logits[request];
    rows.insert(rows.end(), row.begin(), row.end());
  };
  auto engine = load_engine(inputs, options);
  if (!engine.has_value()) FAIL(engine.error().message);
  return std::move(engine).value();
}

void run(engine::Engine& engine, const std::vector<engine::Request>& requests,
         const engine::ImageSource& images, Answers& answers) {
  answers = {.tokens = std::vector<std::vector<std::int32_t>>(requests.size()),
             .scores = std::vector<std::vector<engine::Score>>(requests.size())};
  engine::RunEvents events;
  events.answered = [&](std::size_t request, const Result<engine::Answer>& given) {
    if (!given.has_value()) FAIL(given.error().message);
    answers.tokens[request] = given->tokens;
    answers.scores[request] = given->scores;
    answers.order.push_back(request);
    answers.draft_tokens += given->draft_tokens;
  };
  events.encoded = [&](std::size_t pictures, bool reused) {
    answers.pictures_reused += reused ? pictures : 0;
  };
  const Status status = engine.generate(requests, images, {}, events, {});
  if (!status.has_value()) FAIL(status.error().message);
}

Answers answer(const PreparedInputs& inputs, const std::vector<engine::Request>& requests,
               const engine::EngineOptions& options) {
  Answers answers;
  const auto engine = engine_of(inputs, options, answers);
  run(*engine, requests, *inputs.images, answers);
  return answers;
}

float difference(std::span<const float> got, std::span<const float> expected) {
  REQUIRE(got.size() == expected.size());
  float largest = 0, most = 0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    largest = std::max(largest, std::abs(expected[k]));
    most = std::max(most, std::abs(got[k] - expected[k]));
  }
  return most / largest;
}

double first_scores_error(const PreparedInputs& inputs, const Answers& answers) {
  const auto vocab = static_cast<std::size_t>(inputs.vocab);
  double sum = 0;
  for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
    double squares = 0;
    for (std::size_t k = 0; k < vocab; ++k)
      squares += std::pow(answers.logits.at(i)[k] - inputs.cases[i].logits[k], 2);
    sum += std::sqrt(squares / static_cast<double>(vocab));
  }
  return sum / static_cast<double>(inputs.cases.size());
}

engine::Request with_bytes(engine::Request request, std::size_t count, std::size_t seed) {
  for (std::size_t k = 0; k < count; ++k)
    request.tokens.push_back(static_cast<std::int32_t>((31 * k + 17 * seed) % 256));
  return request;
}

std::vector<engine::Request> scoring_requests(const PreparedInputs& inputs) {
  std::vector<engine::Request> requests;
  for (const PreparedCase& one : inputs.cases) {
    engine::Request in_it = one.request;
    const auto begin = static_cast<std::int64_t>(in_it.tokens.size());
    in_it.tokens.insert(in_it.tokens.end(), one.tokens.begin(), one.tokens.end());
    in_it.scoring =
        engine::Scoring{.spans = {{begin, begin + static_cast<std::int64_t>(one.tokens.size())}},
                        .continuations = {}};
    requests.push_back(std::move(in_it));
    engine::Request behind_it = one.request;
    behind_it.scoring = engine::Scoring{.spans = {}, .continuations = {one.tokens, {0}}};
    requests.push_back(std::move(behind_it));
  }
  return requests;
}

}  // namespace evalcar::testing
