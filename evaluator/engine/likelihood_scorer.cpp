#include "evaluator/engine/likelihood_scorer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "evaluator/engine/generator.h"

namespace evalcar::engine {
namespace {

constexpr std::int64_t kScoreElements = std::int64_t{1} << 24;  // float32: 64 MiB
constexpr std::int64_t kRowsInBlocks = 2048;  // so many elements in 8192 tokens of each

}  // namespace

Scorer::Scorer(const models::Model& model, RunInput input, const PictureSupply& pictures,
               const ScorerOptions& options)
    : model_(model),
      input_(std::move(input)),
      scored_rows_(options.scored_rows),
      reader_(model, input_, pictures, options.reading) {}

Status Scorer::run_pack(std::size_t number, Pack pack) {
  EVALCAR_RETURN_IF_ERROR(reader_.open(number, pack));
  if (reader_.requests().empty()) return {};
  EVALCAR_RETURN_IF_ERROR(reader_.read_prefixes(pack));
  return reader_.read(readings_of(pack),
                      [this](const at::Tensor& hidden, std::span<const ReadRow> rows) {
                        return score_rows(hidden, rows);
                      });
}

// No row behind the last that scores a token is read.
std::vector<Reading> Scorer::readings_of(const Pack& pack) {
  sequences_.clear();
  std::vector<Reading> readings;
  for (const Group& group : pack.groups) {
    for (const std::size_t index : group.requests) {
      const Request& request = input_.requests[index];
      Sequence sequence{.request = index, .tokens = scored_tokens(request)};
      const Scoring& scoring = *request.scoring;
      sequence.answer.scores.assign(scoring.spans.size() + scoring.continuations.size(),
                                    {.log_likelihood = 0, .tokens = 0, .is_greedy = true});
      Reading reading{.slot = static_cast<std::int64_t>(sequences_.size()),
                      .begin = group.shared,
                      .end = sequence.tokens.back().row + 1};
      for (const ScoredToken& token : sequence.tokens) {
        if (reading.wanted.empty() || reading.wanted.back() != token.row)
          reading.wanted.push_back(token.row);
      }
      readings.push_back(std::move(reading));
      sequences_.push_back(std::move(sequence));
    }
  }
  return readings;
}

// Where the vocabulary goes in blocks, many rows read each block of the head once.
std::int64_t Scorer::rows_at_once(const at::Tensor& hidden) const {
  if (scored_rows_ > 0) return scored_rows_;
  if (kernels::has_token_kernel(hidden)) return kRowsInBlocks;
  return std::max<std::int64_t>(1, kScoreElements / model_.info().vocab);
}

Status Scorer::score_rows(const at::Tensor& hidden, std::span<const ReadRow> rows) {
  const auto all = static_cast<std::int64_t>(rows.size());
  const std::int64_t at_once = rows_at_once(hidden);
  for (std::int64_t first = 0; first < all; first += at_once) {
    if (input_.stop.stop_requested()) return cancelled_run();
    const std::int64_t count = std::min(at_once, all - first);
    score_chunk(hidden.narrow(0, first, count),
                rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
    if (input_.events.advanced) input_.events.advanced();
  }
  return {};
}

// hidden: (rows, hidden). A context's last row scores the first token of each of its continuations.
void Scorer::score_chunk(const at::Tensor& hidden, std::span<const ReadRow> rows) {
  struct Scored {
    std::int64_t row = 0;
    std::size_t slot = 0;
    ScoredToken token;
  };
  std::vector<Scored> scored;
  std::vector<std::int64_t> asked_rows, asked_tokens;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto slot = static_cast<std::size_t>(rows[r].slot);
    Sequence& sequence = sequences_[slot];
    for (; sequence.next < sequence.tokens.size(); ++sequence.next) {
      const ScoredToken& token = sequence.tokens[sequence.next];
      if (token.row != rows[r].place) break;
      scored.push_back({static_cast<std::int64_t>(r), slot, token});
      asked_rows.push_back(static_cast<std::int64_t>(r));
      asked_tokens.push_back(token.token);
    }
  }
  const kernels::TokenScores scores =
      model_.score(hidden, {reader_.int64_tensor(asked_rows), reader_.int64_tensor(asked_tokens)});
  const at::Tensor best = scores.best.tokens.cpu();                 // (rows) int64
  const at::Tensor log_likelihoods = scores.log_likelihoods.cpu();  // (asked) float32
  const auto* const best_of = best.const_data_ptr<std::int64_t>();
  const auto* const values = log_likelihoods.const_data_ptr<float>();
  for (std::size_t i = 0; i < scored.size(); ++i) {
    Sequence& sequence = sequences_[scored[i].slot];
    Score& score = sequence.answer.scores[scored[i].token.score];
    score.log_likelihood += static_cast<double>(values[i]);
    ++score.tokens;
    score.is_greedy = score.is_greedy && best_of[scored[i].row] == scored[i].token.token;
    sequence.finite = sequence.finite && std::isfinite(values[i]);
  }
  for (const ReadRow& row : rows) {
    Sequence& sequence = sequences_[static_cast<std::size_t>(row.slot)];
    if (sequence.next == sequence.tokens.size() && row.place == sequence.tokens.back().row)
      answer(sequence);
  }
}

void Scorer::answer(const Sequence& sequence) const {
  if (sequence.finite) {
    input_.events.answered(sequence.request, sequence.answer);
  } else {
    input_.events.answered(sequence.request, not_finite("the tokens that are scored"));
  }
}

}  // namespace evalcar::engine
