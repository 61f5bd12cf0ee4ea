// A pack is computed in two strides: its prompts are read (pack_reader.h); then all sequences
// decode together, one token a step.
#include "evaluator/engine/generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace evalcar::engine {

// "not finite" is what evaluation.cpp tells it by.
Error not_finite(const std::string& where) {
  return make_error(ErrorCode::kInternal, "not finite: the model's scores for " + where +
                                              " are NaN or infinite: a diverged training, or an "
                                              "overflow of evaluate.dtype");
}

Generator::Generator(const models::Model& model, RunInput input, const PictureSupply& pictures,
                     GeneratorOptions options)
    : model_(model),
      input_(std::move(input)),
      options_(std::move(options)),
      reader_(model, input_, pictures, options_.reading) {}

Status Generator::run_pack(std::size_t number, Pack pack) {
  EVALCAR_RETURN_IF_ERROR(reader_.open(number, pack));
  sequences_.clear();
  for (const std::size_t request : reader_.requests()) sequences_.push_back({.request = request});
  if (sequences_.empty()) return {};
  sampler_.emplace(pack.sequences, model_.info().vocab, options_.reading.device);
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
    sampler_->start(static_cast<std::int64_t>(slot), input_.requests[sequences_[slot].request]);
  }
  EVALCAR_RETURN_IF_ERROR(read_prompts(pack));
  accept(std::exchange(scores_, at::Tensor()));
  while (!sequences_.empty()) {
    const at::Tensor scores = decode_step();
    if (input_.stop.stop_requested()) return cancelled_run();
    accept(scores);
  }
  return {};
}

Status Generator::read_prompts(const Pack& pack) {
  EVALCAR_RETURN_IF_ERROR(reader_.read_prefixes(pack));
  std::vector<Reading> rests;
  std::int64_t slot = 0;
  for (const Group& group : pack.groups) {
    for (const std::size_t request : group.requests) {
      const auto length = static_cast<std::int64_t>(input_.requests[request].tokens.size());
      sequences_[static_cast<std::size_t>(slot)].filled = length;
      rests.push_back(
          {.slot = slot++, .begin = group.shared, .end = length, .wanted = {length - 1}});
    }
  }
  std::vector<at::Tensor> hidden;
  EVALCAR_RETURN_IF_ERROR(
      reader_.read(std::move(rests), [&](const at::Tensor& rows, std::span<const ReadRow>) {
        hidden.push_back(rows);
        return Status();
      }));
  scores_ = model_.logits(hidden.size() == 1 ? hidden.front() : at::cat(hidden, 0));
  return {};
}

// Feeds every sequence's last token. Returns the scores, (sequences, vocab).
at::Tensor Generator::decode_step() {
  std::vector<std::int64_t> ids, positions, rows_wanted;
  std::vector<models::Segment> segments;
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
    Sequence& sequence = sequences_[slot];
    const auto index = static_cast<std::int64_t>(slot);
    ids.push_back(sequence.last);
    positions.push_back(input_.prepared[sequence.request].positions.next + sequence.step - 1);
    rows_wanted.push_back(index);
    segments.push_back({.slot = index, .start = sequence.filled++, .length = 1, .row = index});
  }
  const models::CachedAttention attention(segments, reader_.cache(), options_.reading.attention,
                                          model_.info().window);
  const at::Tensor hidden =
      model_.forward({.embeddings = model_.embed(reader_.int64_tensor(ids)),
                      .positions = reader_.int64_tensor(positions).unsqueeze(0).expand({3, -1}),
                      .wanted = reader_.int64_tensor(rows_wanted)},
                     attention, reader_.on_layer());
  return model_.logits(hidden);
}

// Takes the next token of every sequence; those that are done are answered and leave their slot.
void Generator::accept(const at::Tensor& scores) {
  if (options_.observe_logits) observe(scores);
  std::vector<std::int64_t> slots;
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot)
    slots.push_back(static_cast<std::int64_t>(slot));
  const std::vector<std::int32_t> tokens = sampler_->next(scores, slots);
  // From the last slot down: the sequence that takes a freed slot has been looked at already.
  for (std::size_t slot = sequences_.size(); slot-- > 0;) {
    Sequence& sequence = sequences_[slot];
    const GenerationSettings& settings = input_.requests[sequence.request].generation;
    ++sequence.step;
    if (tokens[slot] == kNoToken) {
      const Sequence failed = std::move(sequence);
      remove(static_cast<std::int64_t>(slot));
      input_.events.answered(failed.request,
                             not_finite("token " + std::to_string(failed.step) + " of the answer"));
      continue;
    }
    sequence.last = tokens[slot];
    sequence.answer.stopped =
        std::ranges::find(settings.stop_ids, tokens[slot]) != settings.stop_ids.end();
    if (!sequence.answer.stopped) sequence.answer.tokens.push_back(tokens[slot]);
    if (!sequence.answer.stopped && sequence.step < settings.max_new_tokens) continue;
    const Sequence done = std::move(sequence);
    remove(static_cast<std::int64_t>(slot));
    input_.events.answered(done.request, done.answer);
  }
}

void Generator::observe(const at::Tensor& scores) const {
  const at::Tensor host = scores.to(at::kFloat).cpu().contiguous();
  const auto vocab = static_cast<std::size_t>(host.size(1));
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot)
    options_.observe_logits(sequences_[slot].request, sequences_[slot].step,
                            {host.const_data_ptr<float>() + slot * vocab, vocab});
}

// The last sequence moves into the freed slot, so that slots 0, 1, … stay the ones in use.
void Generator::remove(std::int64_t slot) {
  const auto last = static_cast<std::int64_t>(sequences_.size()) - 1;
  reader_.move_last_to(slot, sequences_.back().filled);
  if (slot != last) {
    sampler_->move(last, slot);
    sequences_[static_cast<std::size_t>(slot)] = std::move(sequences_.back());
  }
  sequences_.pop_back();
}

}  // namespace evalcar::engine
