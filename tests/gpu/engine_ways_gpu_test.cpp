// Ways to compute the same answers against each other: how many go together, what is shared, where
// prompts are cut, by which attention, beside which guesses.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>

#include "tests/gpu/engine_runs.h"

using namespace evalcar;
using namespace evalcar::testing;

namespace {

constexpr std::int64_t kSteps = 12;

/// The inputs' own requests three times over: packs of several sizes, of which some share all of
/// their prompts but the last token.
std::vector<engine::Request> three_times(const PreparedInputs& inputs) {
  std::vector<engine::Request> requests;
  for (int time = 0; time < 3; ++time) {
    for (engine::Request& request : inputs.requests()) {
      request.generation.max_new_tokens = kSteps;
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

struct Way {
  const char* name;
  std::int64_t batch_size;
  bool share_prefixes = true;
  std::int64_t prefill_tokens = 0;
  const char* attention = "";
};
constexpr std::array kWays = {
    Way{"two", 2},
    Way{"five", 5},
    Way{"thirteen", 13},
    Way{"thirteen, nothing shared", 13, false},
    Way{"five, cut", 5, true, 48},
    Way{"five, eager", 5, true, 0, "eager"},
};

engine::EngineOptions options_of(const Way& way, const std::string& device,
                                 const std::string& dtype) {
  return {.device = device,
          .dtype = dtype,
          .attn_implementation = way.attention,
          .batch_size = way.batch_size,
          .prefill_tokens = way.prefill_tokens,
          .share_prefixes = way.share_prefixes};
}

}  // namespace

TEST_CASE("packed, shared, cut and eager a GPU gives in float32 what each request gets alone") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const auto requests = three_times(inputs);
  const Answers alone =
      answer(inputs, requests, options_of({"alone", 1, false}, device, "float32"));
  for (const Way& way : kWays) {
    INFO(way.name);
    const Answers answers = answer(inputs, requests, options_of(way, device, "float32"));
    CHECK(answers.tokens == alone.tokens);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      INFO("request " << i);
      CHECK(difference(answers.logits.at(i), alone.logits.at(i)) <= 1e-4F);
    }
  }
}

TEST_CASE("packed, shared, cut and eager a GPU is in bfloat16 as near to transformers as alone") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  auto requests = three_times(inputs);
  for (engine::Request& request : requests) request.generation.max_new_tokens = 1;
  for (const Way& way : kWays) {
    const Answers answers = answer(inputs, requests, options_of(way, device, "bfloat16"));
    const double error = first_scores_error(inputs, answers);
    INFO(way.name << ": root mean square error " << error << ", transformers' own "
                  << inputs.bfloat16_error);
    CHECK(error < 2 * inputs.bfloat16_error);
    CHECK(error > 0);
  }
}

TEST_CASE(
    "right, wrong and overlong drafts change no token, and in bfloat16 nor on a GPU any bit") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  for (const std::string dtype : {"float32", "bfloat16"}) {
    Answers answers;
    const auto engine =
        engine_of(inputs, {.device = device, .dtype = dtype, .batch_size = 3}, answers);
    auto requests = inputs.requests();
    run(*engine, requests, *inputs.images, answers);
    const Answers without = answers;
    for (const std::string kind : {"right", "wrong", "overlong"}) {
      INFO(dtype << ", " << kind);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        requests[i].draft = without.tokens[i];
        if (kind == "wrong") std::ranges::reverse(requests[i].draft);
        if (kind == "overlong")
          requests[i].draft.insert(requests[i].draft.end(), 100, without.tokens[i].front());
      }
      run(*engine, requests, *inputs.images, answers);
      CHECK(answers.tokens == without.tokens);
      if (device == "cpu" && dtype == "float32") continue;
      CHECK(answers.draft_tokens == 0);
      CHECK(first_difference(answers, without) == "");
    }
  }
}
