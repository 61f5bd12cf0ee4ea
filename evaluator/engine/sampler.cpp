#include "evaluator/engine/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
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

bool penalises(const GenerationSettings& settings) { return settings.repetition_penalty != 1.0; }

}  // namespace

std::int32_t draw_token(std::span<const float> scores, const GenerationSettings& settings,
                        double uniform) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return scores[i]; });
  if (settings.top_k > 0 && static_cast<std::size_t>(settings.top_k) < order.size()) {
    // Every score that equals the k-th stays, as in transformers.
    const float least = scores[order[static_cast<std::size_t>(settings.top_k) - 1]];
    std::erase_if(order, [&](std::size_t i) { return scores[i] < least; });
  }
  std::vector<double> weights;
  for (const std::size_t i : order)
    weights.push_back(
        std::exp((double{scores[i]} - double{scores[order.front()]}) / settings.temperature));
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (settings.top_p < 1.0) {  // the smallest set of best tokens whose mass reaches top_p
    std::size_t kept = 0;
    double mass = 0;
    while (kept < weights.size() && (kept == 0 || mass < settings.top_p * total))
      mass += weights[kept++];
    weights.resize(kept);
    total = mass;
  }
  double left = uniform * total;
  std::size_t chosen = 0;
  while (chosen + 1 < weights.size() && left >= weights[chosen]) left -= weights[chosen++];
  return static_cast<std::int32_t>(order[chosen]);
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
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Row& row = rows_[static_cast<std::size_t>(slots[i])];
    if (!std::isfinite(values[2 * i + 1])) {
      tokens.push_back(kNoToken);
      continue;
    }
    auto token = static_cast<std::int32_t>(values[2 * i]);
    if (row.settings.temperature > 0) {
      const at::Tensor host =
          scores.select(0, static_cast<std::int64_t>(i)).to(at::kFloat).cpu().contiguous();
      token = draw_token({host.const_data_ptr<float>(), static_cast<std::size_t>(vocab_)},
                         row.settings, uniform_of(row.settings.seed, row.stream, row.step));
    }
    ++row.step;
    if (penalises(row.settings)) seen_.select(0, slots[i]).narrow(0, token, 1).fill_(true);
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace evalcar::engine
