#include "evaluator/engine/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evaluator/kernels/token_scores.h"

namespace evalcar::engine {
namespace {

// splitmix64: a counter-based generator, so that a draw depends on seed, stream and step alone,
// never on the pack that the request stands in, nor on the other requests of the run.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

double uniform_of(std::uint64_t seed, std::uint64_t stream, std::uint64_t step) {
  return static_cast<double>(mixed(mixed(mixed(seed) ^ stream) ^ step) >> 11) * 0x1.0p-53;
}

at::Tensor int64_tensor(std::span<const std::int64_t> values, at::Device device) {
  return at::tensor(at::ArrayRef<std::int64_t>(values.data(), values.size()),
                    at::TensorOptions().dtype(at::kLong))
      .to(device);
}

// A model that is sure of itself has its mass in a few dozen tokens.
constexpr std::int64_t kBest = 512;

bool penalises(const GenerationSettings& settings) { return settings.repetition_penalty != 1.0; }

}  // namespace

namespace {

// Where in `weights`, the largest first, the draw falls; `total` is their sum and that of what
// follows them, of which nothing is known: absent where the draw may fall there.
std::optional<std::size_t> place_of(std::vector<double> weights, double total, bool is_all,
                                    double top_p, double uniform) {
  if (top_p < 1.0) {  // the smallest set of best tokens whose mass reaches top_p
    std::size_t kept = 0;
    double mass = 0;
    while (kept < weights.size() && (kept == 0 || mass < top_p * total)) mass += weights[kept++];
    if (!is_all && mass < top_p * total) return std::nullopt;
    weights.resize(kept);
    total = mass;
    is_all = true;
  }
  double left = uniform * total;
  std::size_t chosen = 0;
  while (chosen < weights.size() && left >= weights[chosen]) left -= weights[chosen++];
  if (chosen < weights.size()) return chosen;
  return is_all ? std::optional(weights.size() - 1) : std::nullopt;
}

std::vector<double> weights_of(std::span<const CandidateToken> best, double temperature) {
  std::vector<double> weights;
  for (const CandidateToken& token : best)
    weights.push_back(std::exp((double{token.score} - double{best.front().score}) / temperature));
  return weights;
}

}  // namespace

std::optional<std::int32_t> draw_among_best(std::vector<CandidateToken> best, double total,
                                            const GenerationSettings& settings, double uniform) {
  if (best.empty()) return std::nullopt;
  std::ranges::sort(best, [](const CandidateToken& a, const CandidateToken& b) {
    return a.score > b.score || (a.score == b.score && a.token < b.token);
  });
  // Others may have the last score, too, and stand before it.
  const float last = best.back().score;
  std::erase_if(best, [&](const CandidateToken& token) { return token.score <= last; });
  bool is_all = false;
  if (settings.top_k > 0) {
    if (static_cast<std::size_t>(settings.top_k) > best.size()) return std::nullopt;
    const float least = best[static_cast<std::size_t>(settings.top_k) - 1].score;
    std::erase_if(best, [&](const CandidateToken& token) { return token.score < least; });
    is_all = true;
  }
  if (best.empty()) return std::nullopt;
  std::vector<double> weights = weights_of(best, settings.temperature);
  if (is_all) total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto place = place_of(std::move(weights), total, is_all, settings.top_p, uniform);
  return place ? std::optional(best[*place].token) : std::nullopt;
}

std::int32_t draw_token(std::span<const float> scores, const GenerationSettings& settings,
                        double uniform) {
  std::vector<CandidateToken> best;
  best.reserve(scores.size());
  for (const float score : scores) best.push_back({score, static_cast<std::int32_t>(best.size())});
  std::ranges::stable_sort(best, std::ranges::greater{}, &CandidateToken::score);
  if (settings.top_k > 0 && static_cast<std::size_t>(settings.top_k) < best.size()) {
    // Every score that equals the k-th stays, as in transformers.
    const float least = best[static_cast<std::size_t>(settings.top_k) - 1].score;
    std::erase_if(best, [&](const CandidateToken& token) { return token.score < least; });
  }
  std::vector<double> weights = weights_of(best, settings.temperature);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  return best[*place_of(std::move(weights), total, true, settings.top_p, uniform)].token;
}

Sampler::Sampler(std::int64_t slots, std::int64_t vocab, at::Device device)
    : vocab_(vocab), device_(device), rows_(static_cast<std::size_t>(slots)) {}

void Sampler::ensure_seen() {
  if (seen_.defined()) return;
  seen_ = at::zeros({static_cast<std::int64_t>(rows_.size()), vocab_},
                    at::TensorOptions().dtype(at::kBool).device(device_));
}

void Sampler::start(std::int64_t slot, const Request& source) {
  rows_[static_cast<std::size_t>(slot)] = {source.generation, source.stream, 0};
  if (!penalises(source.generation)) return;
  ensure_seen();
  const std::vector<std::int64_t> ids(source.tokens.begin(), source.tokens.end());
  at::Tensor row = seen_.select(0, slot);
  row.zero_();
  row.index_fill_(0, int64_tensor(ids, device_), true);
}

void Sampler::move(std::int64_t from, std::int64_t to) {
  rows_[static_cast<std::size_t>(to)] = rows_[static_cast<std::size_t>(from)];
  if (seen_.defined()) seen_.select(0, to).copy_(seen_.select(0, from));
}

// A seen token's score is divided by the penalty where positive, multiplied where negative.
at::Tensor Sampler::penalised(const at::Tensor& scores, std::span<const std::int64_t> slots) {
  std::vector<float> penalties;
  for (const std::int64_t slot : slots) {
    const GenerationSettings& settings = rows_[static_cast<std::size_t>(slot)].settings;
    penalties.push_back(static_cast<float>(settings.repetition_penalty));
  }
  const at::Tensor penalty =
      at::tensor(at::ArrayRef<float>(penalties)).to(device_).unsqueeze(1);  // (k, 1)
  const at::Tensor lowered = at::where(scores < 0, scores * penalty, scores / penalty);
  return at::where(seen_.index_select(0, int64_tensor(slots, device_)), lowered, scores);
}

at::Tensor Sampler::effective(const at::Tensor& scores, std::span<const std::int64_t> slots) {
  const bool any_penalty = std::ranges::any_of(slots, [&](std::int64_t slot) {
    return penalises(rows_[static_cast<std::size_t>(slot)].settings);
  });
  return any_penalty ? penalised(scores.to(at::kFloat), slots) : scores;
}

std::vector<bool> Sampler::are_clear(const at::Tensor& raw, std::span<const std::int64_t> slots) {
  const at::Tensor scores = effective(raw, slots).to(at::kFloat);
  const auto [least, best] = at::aminmax(scores, 1, /*keepdim=*/true);  // (k, 1) each
  const at::Tensor near = best - at::maximum(least.abs(), best.abs()) * kClearMargin;
  const at::Tensor rivals = (scores >= near).sum(1).cpu();  // the best itself is one; NaN is none
  std::vector<bool> clear;
  for (std::size_t i = 0; i < slots.size(); ++i)
    clear.push_back(rivals.const_data_ptr<std::int64_t>()[i] == 1);
  return clear;
}

std::vector<std::int32_t> Sampler::next(const at::Tensor& raw,
                                        std::span<const std::int64_t> slots) {
  const at::Tensor scores = effective(raw, slots);
  // The largest score is NaN where any is, and shows an infinite one. One copy to the host: an
  // index below 2^24 is exact as float.
  const kernels::BestTokens best = kernels::best_tokens(scores);
  const at::Tensor chosen =
      at::stack({best.tokens.to(at::kFloat), best.scores}, 1).cpu();  // (k, 2)
  const float* const values = chosen.const_data_ptr<float>();
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> drawn;  // rows of `scores`
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const bool is_finite = std::isfinite(values[2 * i + 1]);
    tokens.push_back(is_finite ? static_cast<std::int32_t>(values[2 * i]) : kNoToken);
    const Row& row = rows_[static_cast<std::size_t>(slots[i])];
    if (is_finite && row.settings.temperature > 0) drawn.push_back(static_cast<std::int64_t>(i));
  }
  if (!drawn.empty()) draw(scores, slots, drawn, tokens);
  remember(slots, tokens);
  return tokens;
}

void Sampler::draw(const at::Tensor& scores, std::span<const std::int64_t> slots,
                   std::span<const std::int64_t> drawn, std::vector<std::int32_t>& tokens) const {
  // Sorting a vocabulary takes longer than the model's pass: nearly every draw falls among the
  // best.
  const at::Tensor rows = scores.index_select(0, int64_tensor(drawn, device_)).to(at::kFloat);
  std::vector<float> temperatures;
  for (const std::int64_t i : drawn)
    temperatures.push_back(static_cast<float>(
        rows_[static_cast<std::size_t>(slots[static_cast<std::size_t>(i)])].settings.temperature));
  const at::Tensor temperature =
      at::tensor(at::ArrayRef<float>(temperatures)).to(device_).unsqueeze(1);  // (n, 1)
  const auto [best, ids] = at::topk(rows, std::min(vocab_, kBest), 1);         // (n, kBest) each
  // In place: for 128 rows of 150,000 tokens each copy is 78 MB.
  at::Tensor weights = rows - best.narrow(1, 0, 1);
  weights.div_(temperature).exp_();
  const at::Tensor mass = weights.sum(1, false, at::kDouble).cpu();
  const at::Tensor best_scores = best.cpu().contiguous(), best_ids = ids.cpu().contiguous();
  for (std::size_t n = 0; n < drawn.size(); ++n) {
    const auto i = static_cast<std::size_t>(drawn[n]);
    const Row& row = rows_[static_cast<std::size_t>(slots[i])];
    const double uniform = uniform_of(row.settings.seed, row.stream, row.step);
    std::vector<CandidateToken> head;
    for (std::int64_t k = 0; k < best.size(1); ++k) {
      const std::int64_t at = static_cast<std::int64_t>(n) * best.size(1) + k;
      head.push_back({best_scores.const_data_ptr<float>()[at],
                      static_cast<std::int32_t>(best_ids.const_data_ptr<std::int64_t>()[at])});
    }
    const auto token =
        draw_among_best(std::move(head), mass.const_data_ptr<double>()[n], row.settings, uniform);
    if (token) {
      tokens[i] = *token;
      continue;
    }
    const at::Tensor whole = rows.select(0, static_cast<std::int64_t>(n)).cpu().contiguous();
    tokens[i] = draw_token({whole.const_data_ptr<float>(), static_cast<std::size_t>(vocab_)},
                           row.settings, uniform);
  }
}

void Sampler::remember(std::span<const std::int64_t> slots, std::span<const std::int32_t> tokens) {
  std::vector<std::int64_t> places, ids;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (tokens[i] == kNoToken) continue;
    Row& row = rows_[static_cast<std::size_t>(slots[i])];
    ++row.step;
    if (!penalises(row.settings)) continue;
    places.push_back(slots[i]);
    ids.push_back(tokens[i]);
  }
  if (places.empty()) return;
  const c10::List<std::optional<at::Tensor>> where = {int64_tensor(places, device_),
                                                      int64_tensor(ids, device_)};
  seen_.index_put_(where, at::scalar_tensor(true, at::TensorOptions().dtype(at::kBool)));
}

}  // namespace evalcar::engine
