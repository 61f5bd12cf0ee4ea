#include "evaluator/kernels/token_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "evaluator/kernels/token_scores_block.h"
#include "tests/unit/kernels/emulated_block.h"

using namespace evalcar::kernels;
using evalcar::testing::EmulatedBlock;
using evalcar::testing::ThreadOrder;

namespace {

struct Emulated {
  std::vector<TokenState> rows;
  at::Tensor tokens, scores, log_likelihoods;
};

template <typename T>
void reduce_blocks(const at::Tensor& scores, std::int64_t at_once, ThreadOrder order,
                   const AskedTokens& asked, std::vector<TokenState>& parts, float* picked) {
  const std::int64_t parts_of_row = parts_of(scores.size(1));
  TokenState shared[kTokenThreads];
  for (std::int64_t first = 0; first < scores.size(1); first += at_once) {
    // As a product leaves it: a tensor of its own.
    const at::Tensor own =
        scores.narrow(1, first, std::min(at_once, scores.size(1) - first)).contiguous();
    const ScoreBlock<T> block{static_cast<const T*>(own.const_data_ptr()),
                              own.stride(0),
                              own.size(0),
                              own.size(1),
                              first,
                              own.stride(0) % kVector<T> == 0};
    for (std::int64_t row = 0; row < block.rows; ++row) {
      for (std::int64_t part = 0; part < parts_of(block.tokens); ++part) {
        EmulatedBlock<TokenOwn> threads(kTokenThreads, order);
        const std::int64_t to = row * parts_of_row + first / kPartTokens + part;
        reduce_part(block, row, part, &parts[static_cast<std::size_t>(to)], threads, shared);
      }
    }
    const auto* const rows = asked.rows.const_data_ptr<std::int64_t>();
    const auto* const tokens = asked.tokens.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < asked.rows.numel(); ++i)
      pick_score(block, rows[i], tokens[i], picked + i);
  }
}

// As score_tokens() does it on a GPU, from the product on.
Emulated emulated(const at::Tensor& scores, const AskedTokens& asked,
                  std::int64_t at_once = 2 * kPartTokens,
                  ThreadOrder order = ThreadOrder::kForwards) {
  const std::int64_t parts_of_row = parts_of(scores.size(1));
  std::vector<TokenState> parts(static_cast<std::size_t>(scores.size(0) * parts_of_row),
                                {NAN, 0, NAN, NAN});
  Emulated made{std::vector<TokenState>(static_cast<std::size_t>(scores.size(0))),
                at::full({scores.size(0)}, -1, at::kLong), at::full({scores.size(0)}, NAN),
                at::full({asked.rows.numel()}, NAN)};
  auto* const picked = made.log_likelihoods.mutable_data_ptr<float>();
  if (scores.scalar_type() == at::kFloat) {
    reduce_blocks<float>(scores, at_once, order, asked, parts, picked);
  } else {
    reduce_blocks<BFloat16>(scores, at_once, order, asked, parts, picked);
  }
  TokenState shared[kTokenThreads];
  for (std::size_t row = 0; row < made.rows.size(); ++row) {
    EmulatedBlock<TokenOwn> threads(kTokenThreads, order);
    join_parts(parts.data() + static_cast<std::int64_t>(row) * parts_of_row, parts_of_row,
               &made.rows[row], threads, shared);
    made.tokens.mutable_data_ptr<std::int64_t>()[row] = made.rows[row].token;
    made.scores.mutable_data_ptr<float>()[row] = made.rows[row].best;
  }
  for (std::int64_t i = 0; i < asked.rows.numel(); ++i) {
    const auto row = static_cast<std::size_t>(asked.rows.const_data_ptr<std::int64_t>()[i]);
    picked[i] = log_likelihood(made.rows[row], picked[i]);
  }
  return made;
}

// A few tokens of each row, those at the borders of parts among them.
AskedTokens asked_of(const at::Tensor& scores) {
  std::vector<std::int64_t> rows, tokens;
  for (std::int64_t row = 0; row < scores.size(0); ++row) {
    for (const std::int64_t token : {std::int64_t{0}, kPartTokens - 1, kPartTokens, 3 * kPartTokens,
                                     scores.size(1) - 1, scores.size(1) / 2}) {
      if (token >= scores.size(1)) continue;
      rows.push_back(row);
      tokens.push_back(token);
    }
  }
  return {at::tensor(rows), at::tensor(tokens)};
}

at::Tensor expected_log_likelihoods(const at::Tensor& scores, const AskedTokens& asked) {
  return at::log_softmax(scores.to(at::kDouble), 1)
      .view({-1})
      .index_select(0, asked.rows * scores.size(1) + asked.tokens);
}

// A head whose scores are `scores`: its input are unit vectors.
LinearWeights head_of(const at::Tensor& scores) { return {scores.t().contiguous(), {}, {}}; }
at::Tensor unit_rows(std::int64_t rows) {
  return at::arange(rows).unsqueeze(0).eq(at::arange(rows).unsqueeze(1)).to(at::kFloat);
}

bool is_same(const TokenState& a, const TokenState& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Around the borders of parts; the last has more parts than a block has threads.
const std::vector<std::int64_t> kVocabularies = {1, 7, 4095, 4096, 4097, 8192, 8193, 33001, 600001};

}  // namespace

TEST_CASE("best tokens and log-likelihoods by parts are those of all scores, for any vocabulary") {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t vocab : kVocabularies) {
      CAPTURE(type, vocab);
      const at::Tensor scores = at::randn({3, vocab}).mul_(5.0).to(type);
      const AskedTokens asked = asked_of(scores);

      const Emulated got = emulated(scores, asked);

      const at::Tensor floats = scores.to(at::kFloat);
      CHECK(at::equal(got.scores, std::get<0>(floats.max(1))));
      // The lowest of equal ones, which bfloat16 has many of.
      for (std::int64_t row = 0; row < 3; ++row) {
        const at::Tensor best = floats.select(0, row) == got.scores.select(0, row);
        CHECK(best.nonzero().select(0, 0).item<std::int64_t>() ==
              got.tokens.select(0, row).item<std::int64_t>());
      }
      // float32's rounding, at the size of the largest (some 30).
      const at::Tensor wanted = expected_log_likelihoods(scores, asked);
      CHECK((got.log_likelihoods.to(at::kDouble) - wanted).abs().max().item<double>() < 6e-6);
    }
  }
}

TEST_CASE(
    "the bits of a row's scores depend neither on the blocks they come in nor on other rows") {
  const at::Tensor scores = at::randn({4, 33001}).mul_(5.0).to(at::kBFloat16);
  const AskedTokens none{at::full({0}, 0, at::kLong), at::full({0}, 0, at::kLong)};
  const Emulated together = emulated(scores, none);
  const Emulated wide = emulated(scores, none, 20 * kPartTokens);
  const Emulated backwards = emulated(scores, none, 2 * kPartTokens, ThreadOrder::kBackwards);
  for (std::int64_t row = 0; row < 4; ++row) {
    const TokenState& state = together.rows[static_cast<std::size_t>(row)];
    CHECK(is_same(state, wide.rows[static_cast<std::size_t>(row)]));
    CHECK(is_same(state, backwards.rows[static_cast<std::size_t>(row)]));
    CHECK(is_same(state, emulated(scores.narrow(0, row, 1), none).rows.front()));
  }
}

TEST_CASE("of equal scores the lowest token is the best, wherever they lie") {
  for (const auto& [low, high] : {std::pair{0, 1},
                                  {5, 13},
                                  {127 * 8, 4095},
                                  {4095, 4096},
                                  {1, 8191},
                                  {3000, 9999},
                                  {9991, 9992}}) {
    CAPTURE(low, high);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor scores = at::full({1, 10000}, -3.0).to(type);
      scores.select(1, low).fill_(2.0);
      scores.select(1, high).fill_(2.0);
      CHECK(emulated(scores, asked_of(scores)).tokens.item<std::int64_t>() == low);
      CHECK(best_tokens(scores).tokens.item<std::int64_t>() == low);
    }
  }
}

TEST_CASE("a score that is no number is told, as ATen's argmax and softmax tell it") {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const std::int64_t place : {0, 4097, 9999}) {
      CAPTURE(bad, place);
      const at::Tensor scores = at::randn({3, 10000});
      scores.select(0, 1).select(0, place).fill_(bad);
      const AskedTokens asked = asked_of(scores);

      const Emulated got = emulated(scores, asked);
      const BestTokens wanted = best_tokens_reference(scores);

      CHECK(at::equal(got.tokens, wanted.tokens));
      CHECK(at::equal(at::isnan(got.scores), at::isnan(wanted.scores)));
      CHECK(at::equal(got.scores.isinf(), wanted.scores.isinf()));
      const at::Tensor log_likelihoods = expected_log_likelihoods(scores, asked);
      CHECK(at::equal(got.log_likelihoods.isfinite(), log_likelihoods.isfinite()));
    }
  }
}

TEST_CASE("scores of -inf over whole parts take nothing from the likelihood of the others") {
  const at::Tensor scores = at::full({2, 10000}, -INFINITY);
  scores.narrow(1, 9000, 500).copy_(at::randn({2, 500}));
  const AskedTokens asked{at::tensor(std::vector<std::int64_t>{0, 1, 1}),
                          at::tensor(std::vector<std::int64_t>{9000, 9499, 0})};

  const at::Tensor got = emulated(scores, asked).log_likelihoods;

  const at::Tensor error = got.to(at::kDouble) - expected_log_likelihoods(scores, asked);
  CHECK(error.narrow(0, 0, 2).abs().max().item<double>() < 2e-6);
  CHECK(got.select(0, 2).item<float>() == -INFINITY);
}

TEST_CASE("of a block of scores a token that is in another block is not picked") {
  const at::Tensor scores = at::full({1, 8}, 1.0);
  const ScoreBlock<float> block{scores.const_data_ptr<float>(), 4, 1, 4, kPartTokens, true};
  float picked = NAN;
  for (const std::int64_t token : {kPartTokens - 1, kPartTokens + 4}) {
    pick_score(block, 0, token, &picked);
    CHECK(std::isnan(picked));
  }
  pick_score(block, 0, kPartTokens + 3, &picked);
  CHECK(picked == 1.0F);
}

TEST_CASE("scores that are all lowest, or all NaN, leave no token without its infinity") {
  for (const float all : {NAN, -INFINITY}) {
    const at::Tensor scores = at::full({1, 5000}, all);
    const Emulated got = emulated(scores, asked_of(scores));
    CHECK(got.tokens.item<std::int64_t>() == 0);
    CHECK_FALSE(got.scores.isfinite().item<bool>());
    CHECK_FALSE(got.log_likelihoods.isfinite().any().item<bool>());
  }
}

TEST_CASE(
    "scoring tokens on the CPU is log_softmax at the tokens and argmax, as it was written out") {
  const at::Tensor scores = at::randn({5, 777}).mul_(4.0);
  const AskedTokens asked = asked_of(scores);

  const TokenScores got = score_tokens(unit_rows(5), head_of(scores), asked);

  CHECK(at::equal(got.best.tokens, at::argmax(scores, 1)));
  CHECK((got.log_likelihoods - expected_log_likelihoods(scores, asked)).abs().max().item<double>() <
        6e-6);
}
