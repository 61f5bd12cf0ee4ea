#include "evaluator/engine/sampler.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

using namespace evalcar::engine;

namespace {

// Softmax of these is 0.64, 0.24, 0.09, 0.03: each is e times likelier than the next.
constexpr std::array<float, 4> kScores = {1.0f, 3.0f, 0.0f, 2.0f};

std::array<int, 4> draws(const GenerationSettings& settings) {
  std::array<int, 4> counts{};
  for (int i = 0; i < 1000; ++i)
    ++counts[static_cast<std::size_t>(draw_token(kScores, settings, (i + 0.5) / 1000))];
  return counts;
}

}  // namespace

TEST_CASE("draws follow the softmax of the scores") {
  const auto counts = draws({.temperature = 1.0});

  CHECK(counts[1] == 644);
  CHECK(counts[3] == 237);
  CHECK(counts[0] == 87);
  CHECK(counts[2] == 32);
}

TEST_CASE("a low temperature sharpens the draw") {
  const auto counts = draws({.temperature = 0.1});

  CHECK(counts[1] == 1000);
}

TEST_CASE("top_k keeps the k best tokens") {
  const auto counts = draws({.temperature = 1.0, .top_k = 2});

  CHECK(counts[1] == 731);
  CHECK(counts[3] == 269);
}

TEST_CASE("top_p keeps the smallest set of tokens that reaches its mass") {
  const auto one = draws({.temperature = 1.0, .top_p = 0.6});
  const auto two = draws({.temperature = 1.0, .top_p = 0.7});

  CHECK(one[1] == 1000);
  CHECK(two[1] + two[3] == 1000);
  CHECK(two[3] == 269);
}

TEST_CASE("the largest uniform still draws a token that is there") {
  CHECK(draw_token(kScores, {.temperature = 1.0}, std::nextafter(1.0, 0.0)) == 2);
}

TEST_CASE("the best tokens of a row draw what the whole row draws, or say that they do not tell") {
  std::mt19937 random(7);
  std::normal_distribution<float> score(0.0f, 4.0f);
  constexpr std::size_t kVocab = 3000, kBest = 64;
  int told = 0, asked = 0;
  for (int row = 0; row < 40; ++row) {
    std::vector<float> scores(kVocab);
    for (float& value : scores) value = score(random);
    // Ties, also over the border of the best ones.
    if (row % 2 == 1)
      std::ranges::for_each(scores, [](float& value) { value = std::round(value); });
    std::vector<CandidateToken> best;
    for (std::size_t i = 0; i < kVocab; ++i) best.push_back({scores[i], static_cast<int>(i)});
    std::ranges::sort(best, std::ranges::greater{}, &CandidateToken::score);  // ties in any order
    for (const GenerationSettings& settings :
         {GenerationSettings{.temperature = 1.0}, GenerationSettings{.temperature = 0.3},
          GenerationSettings{.temperature = 1.0, .top_p = 0.8},
          GenerationSettings{.temperature = 2.0, .top_k = 20},
          GenerationSettings{.temperature = 1.0, .top_p = 0.9, .top_k = 50},
          GenerationSettings{.temperature = 1.0, .top_k = 100}}) {
      double total = 0;
      for (const CandidateToken& token : best)
        total += std::exp((double{token.score} - best.front().score) / settings.temperature);
      for (int i = 0; i < 50; ++i) {
        const double uniform = (i + 0.5) / 50;
        std::vector<CandidateToken> in_any_order(best.begin(), best.begin() + kBest);
        std::ranges::shuffle(in_any_order, random);
        const auto drawn = draw_among_best(in_any_order, total, settings, uniform);
        ++asked;
        if (!drawn) continue;
        ++told;
        CHECK(*drawn == draw_token(scores, settings, uniform));
      }
    }
  }
  CHECK(told > asked / 3);
  CHECK(told < asked);
}

TEST_CASE("draws from a large vocabulary follow its softmax, wherever its mass is") {
  constexpr std::int64_t kVocab = 2000;
  constexpr int kDraws = 4000;
  for (const float height : {8.0f, 0.0f}) {  // of token 5: nearly all of the mass, or none of it
    std::vector<float> values(kVocab, 0.0f);
    values[5] = height;
    values[1999] = height - 1.0f;
    Request request;
    request.tokens = {0};
    request.generation.temperature = 1.0;
    Sampler sampler(1, kVocab, at::kCPU);
    sampler.start(0, request);
    const at::Tensor scores = at::tensor(values).view({1, kVocab});
    int first = 0, last = 0;
    for (int i = 0; i < kDraws; ++i) {
      const std::int32_t token = sampler.next(scores, std::array<std::int64_t, 1>{0})[0];
      first += token == 5;
      last += token == 1999;
    }

    const double mass = std::exp(height) + std::exp(height - 1) + (kVocab - 2);
    const auto is_near = [](int count, double share) {
      return std::abs(count - kDraws * share) < 4 * std::sqrt(kDraws * share * (1 - share)) + 1;
    };
    CHECK(is_near(first, std::exp(height) / mass));
    CHECK(is_near(last, std::exp(height - 1) / mass));
  }
}

TEST_CASE("a row whose scores are no numbers gives no token, and the others theirs") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Only +inf and NaN are broken: -inf is how a token is forbidden.
  const std::vector<float> values = {1, 3,          0,          2,  // fine
                                     1, kNan,       0,          2,  //
                                     1, kInfinity,  0,          2,  //
                                     1, -kInfinity, -kInfinity, 2};
  const at::Tensor scores = at::tensor(values).view({4, 4});
  Request greedy;
  greedy.tokens = {0};
  Request drawn = greedy;
  drawn.generation.temperature = 1.0;
  for (const Request& request : {greedy, drawn}) {
    Sampler sampler(4, 4, at::kCPU);
    for (std::int64_t slot = 0; slot < 4; ++slot) sampler.start(slot, request);

    const auto tokens = sampler.next(scores, std::array<std::int64_t, 4>{0, 1, 2, 3});

    CHECK(tokens[0] != kNoToken);
    CHECK(tokens[1] == kNoToken);
    CHECK(tokens[2] == kNoToken);
    CHECK(tokens[3] != kNoToken);
  }
}

TEST_CASE(
    "a token is clear where it is the best by more than the margin, whatever the scores' size") {
  const auto margin = static_cast<float>(kClearMargin);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  struct Row {
    const char* what;
    std::array<float, 4> scores;
    bool clear;
  };
  const std::vector<Row> rows = {
      {"far ahead", {1, 8, 0, 2}, true},
      {"a little more than the margin", {8 - 16 * margin, 8, 0, 2}, true},
      {"a little less than the margin", {8 - 4 * margin, 8, 0, 2}, false},
      {"a tie", {8, 8, 0, 2}, false},
      {"less than the margin of a far larger negative score", {7.99f, 8, -800, 2}, false},
      {"all negative, far ahead", {-8, -4, -7, -6}, true},
      {"all negative, near", {-8, -8 + 4 * margin, -9, -9}, false},
      {"no number", {kNan, 8, 0, 2}, false},
      {"infinite", {1, kInfinity, 0, 2}, false},
      {"a token is forbidden: what is left has no size to compare with",
       {-kInfinity, 8, 0, 2},
       false},
  };
  std::vector<float> values;
  for (const Row& row : rows) values.insert(values.end(), row.scores.begin(), row.scores.end());
  const auto count = static_cast<std::int64_t>(rows.size());
  Request greedy;
  greedy.tokens = {0};
  Sampler sampler(count, 4, at::kCPU);
  std::vector<std::int64_t> slots;
  for (std::int64_t slot = 0; slot < count; ++slot) {
    sampler.start(slot, greedy);
    slots.push_back(slot);
  }

  const auto clear = sampler.are_clear(at::tensor(values).view({count, 4}), slots);

  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO(rows[i].what);
    CHECK(clear[i] == rows[i].clear);
  }
}

TEST_CASE("whether a token is clear counts the penalty, and remembers no token") {
  Request penalised;
  penalised.tokens = {1};
  penalised.generation.repetition_penalty = 2.0;
  Sampler sampler(2, 4, at::kCPU);
  sampler.start(1, penalised);
  const std::array<std::int64_t, 1> slot = {1};
  const at::Tensor scores = at::tensor({4.0f, 8.0f, 0.0f, 2.0f}).view({1, 4});  // 8 becomes 4

  for (int times = 0; times < 2; ++times) CHECK_FALSE(sampler.are_clear(scores, slot)[0]);
  CHECK(sampler.next(scores, slot)[0] == 0);
  CHECK(sampler.are_clear(scores, slot)[0]);  // 0 was taken: it is 2 now, and 1 is 4
  CHECK(sampler.next(scores, slot)[0] == 1);
}
