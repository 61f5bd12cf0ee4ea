#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "evaluator/kernels/token_scores.h"

using namespace evalcar::kernels;

TEST_CASE("the best tokens of a GPU's scores are the lowest of the largest") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t vocab : {1, 7, 4096, 4097, 32003, 151936}) {
      CAPTURE(type, vocab);
      // Whole numbers: many are equal.
      const at::Tensor scores = at::randint(-9, 9, {17, vocab}, options).to(type);
      REQUIRE(has_token_kernel(scores));

      const BestTokens best = best_tokens(scores);

      const at::Tensor host = scores.cpu().to(at::kFloat);
      const BestTokens expected = best_tokens_reference(host);
      CHECK(at::equal(best.scores.cpu(), expected.scores));
      for (std::int64_t row = 0; row < 17; ++row) {
        const at::Tensor largest = host.select(0, row) == expected.scores.select(0, row);
        CHECK(best.tokens.select(0, row).item<std::int64_t>() ==
              largest.nonzero().select(0, 0).item<std::int64_t>());
      }
    }
  }
}

TEST_CASE("tokens that are scored in blocks of the vocabulary have their log_softmax on a GPU") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const auto options = at::TensorOptions().device(at::kCUDA);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t rows : {1, 300, 2048}) {  // 2^24 scores at once: 1, 1 and 4 blocks
      CAPTURE(type, rows);
      const std::int64_t vocab = 32003;
      const at::Tensor hidden = at::randn({rows, 256}, options).to(type);
      const LinearWeights head{at::randn({vocab, 256}, options).mul_(0.3).to(type), {}, {}};
      const auto longs = options.dtype(at::kLong);
      const AskedTokens asked{at::randint(0, rows, {5000}, longs),
                              at::randint(0, vocab, {5000}, longs)};

      const TokenScores got = score_tokens(hidden, head, asked);

      const TokenScores expected = score_tokens_reference(hidden, head, asked);
      // Products of a block may be added up in another order than those of the whole: in bfloat16 a
      // score then is a unit of its last place off (1/16 of scores up to 32).
      const float tolerance = type == at::kFloat ? 1e-4F : 0.13F;
      CHECK((got.log_likelihoods - expected.log_likelihoods).abs().max().item<float>() < tolerance);
      CHECK((got.best.scores - expected.best.scores).abs().max().item<float>() < tolerance);
      const TokenScores again = score_tokens(hidden, head, asked);
      CHECK(at::equal(got.log_likelihoods, again.log_likelihoods));
      CHECK(at::equal(got.best.tokens, again.best.tokens));
    }
  }
}

TEST_CASE("a GPU's scores that are no numbers are told") {
  if (!at::hasCUDA()) SKIP("needs a GPU: libtorch sees none");
  const at::Tensor scores =
      at::randn({3, 32003}, at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16));
  scores.select(0, 0).select(0, 31000).fill_(NAN);
  scores.select(0, 1).select(0, 4096).fill_(INFINITY);

  const BestTokens best = best_tokens(scores);

  CHECK(best.tokens.select(0, 0).item<std::int64_t>() == 31000);
  CHECK(best.scores.select(0, 0).isnan().item<bool>());
  CHECK(best.scores.select(0, 1).isinf().item<bool>());
  CHECK(best.scores.select(0, 2).isfinite().item<bool>());
}
