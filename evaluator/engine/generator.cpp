// A pack is computed in two strides: its prompts are read (pack_reader.h); then all sequences
// decode together, one token a pass, or several where a draft says what they will probably be.
//
// A guess is a row like any other: it is fed behind the token before it, and the scores of that one
// say whether it was right. What is behind a wrong one in the cache is never seen: a row attends to
// places up to its own, and each place is written before the row of it attends. A row that is
// computed together with others differs in the last bits from one that is not, and so do the keys
// and values that it leaves. So from the first such place on ("doubtful") a token is taken only
// where it is clearly the best (Sampler::are_clear). Where it is not, the draft is dropped, and
// everything from that place on is computed again, one row a pass: what is known is fed, and the
// token is chosen from the scores that there would have been without the draft: the very bits, for
// the others, which may be further on by then, change none of a decoded row (kMostDecoded).
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
  begin_sequences(pack);
  if (sequences_.empty()) return {};
  EVALCAR_RETURN_IF_ERROR(read_prompts(pack));
  const bool on_device = GraphDecoder::can_decode(reader_.cache(), options_.reading.attention);
  if (on_device && !decoder_) decoder_.emplace(model_, options_.reading.device, options_.graphs);
  while (!sequences_.empty()) {
    const Pass pass = next_pass();
    const at::Tensor scores = on_device ? compute_on_device(pass) : compute(pass);
    if (input_.stop.stop_requested()) return cancelled_run();
    accept(pass, scores);
  }
  return {};
}

void Generator::begin_sequences(const Pack& pack) {
  sequences_.clear();
  const auto& requests = reader_.requests();
  // A draw has no margin, and all rows of a pass are computed in one way.
  const bool drafts = options_.draft_rows > 0 && std::ranges::all_of(requests, [&](std::size_t i) {
                        return input_.requests[i].generation.temperature == 0;
                      });
  pack_sequences_ = pack.sequences;
  sampler_.emplace(pack.sequences, model_.info().vocab, options_.reading.device);
  for (const std::size_t request : requests) {
    const Request& source = input_.requests[request];
    const auto length = static_cast<std::int64_t>(source.tokens.size());
    sampler_->start(static_cast<std::int64_t>(sequences_.size()), source);
    sequences_.push_back({.request = request, .prompt = length, .filled = length});
    if (drafts) sequences_.back().draft = Draft(input_.prepared[request].draft);
  }
}

// Also takes each answer's first token.
Status Generator::read_prompts(const Pack& pack) {
  EVALCAR_RETURN_IF_ERROR(reader_.read_prefixes(pack));
  std::vector<Reading> rests;
  Pass pass{.guesses = std::vector<std::span<const std::int32_t>>(sequences_.size())};
  for (const Group& group : pack.groups) {
    for (const std::size_t request : group.requests) {
      const auto slot = static_cast<std::int64_t>(rests.size());
      const auto length = static_cast<std::int64_t>(input_.requests[request].tokens.size());
      rests.push_back({.slot = slot, .begin = group.shared, .end = length, .wanted = {length - 1}});
      pass.first_scores.push_back(slot);
    }
  }
  std::vector<at::Tensor> hidden;
  EVALCAR_RETURN_IF_ERROR(
      reader_.read(std::move(rests), [&](const at::Tensor& rows, std::span<const ReadRow>) {
        hidden.push_back(rows);
        return Status();
      }));
  accept(pass, model_.logits(hidden.size() == 1 ? hidden.front() : at::cat(hidden, 0)));
  return {};
}

// How many each sequence may add. While one is computed anew all go on one row a pass, so that its
// rows are computed as without drafts.
std::int64_t Generator::guesses_now() const {
  if (std::ranges::any_of(sequences_, &Sequence::again)) return 0;
  const auto drafting = std::ranges::count_if(
      sequences_, [](const Sequence& sequence) { return !sequence.draft.next(1).empty(); });
  return guesses_of_each(static_cast<std::int64_t>(sequences_.size()), drafting,
                         options_.draft_rows);
}

Generator::Pass Generator::next_pass() {
  Pass pass;
  const std::int64_t most = guesses_now();
  std::int64_t row = 0, scored = 0;
  for (Sequence& sequence : sequences_) {
    const std::int64_t left = input_.requests[sequence.request].generation.max_new_tokens -
                              static_cast<std::int64_t>(sequence.answer.tokens.size());
    const auto guesses = sequence.draft.next(std::min(most, left - 1));
    const auto count = static_cast<std::int64_t>(guesses.size());
    const auto slot = static_cast<std::int64_t>(pass.segments.size());
    pass.segments.push_back(
        {.slot = slot, .start = sequence.filled, .length = 1 + count, .row = row});
    pass.guesses.push_back(guesses);
    pass.first_scores.push_back(sequence.is_behind() ? -1 : scored);
    row += 1 + count;
    if (!sequence.is_behind()) scored += 1 + count;
    sequence.answer.draft_tokens += count;
  }
  const bool alone = row == static_cast<std::int64_t>(sequences_.size());
  for (Sequence& sequence : sequences_) {
    if (!alone && !sequence.doubtful_from) sequence.doubtful_from = sequence.filled;
    ++sequence.filled;
  }
  return pass;
}

// Returns the scores of the rows that ask for them, (rows, vocab).
at::Tensor Generator::compute(const Pass& pass) {
  std::vector<std::int64_t> ids, positions, wanted;
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
    const Sequence& sequence = sequences_[slot];
    const models::Segment& segment = pass.segments[slot];
    const std::int64_t token = segment.start - sequence.prompt;  // of the answer
    ids.push_back(sequence.answer.tokens[static_cast<std::size_t>(token)]);
    ids.insert(ids.end(), pass.guesses[slot].begin(), pass.guesses[slot].end());
    for (std::int64_t i = 0; i < segment.length; ++i) {
      positions.push_back(input_.prepared[sequence.request].positions.next + token + i);
      if (pass.first_scores[slot] >= 0) wanted.push_back(segment.row + i);
    }
  }
  const models::CachedAttention attention(pass.segments, reader_.cache(),
                                          options_.reading.attention, model_.info().window);
  const at::Tensor hidden =
      model_.forward({.embeddings = model_.embed(reader_.int64_tensor(ids)),
                      .positions = reader_.int64_tensor(positions).unsqueeze(0).expand({3, -1}),
                      .wanted = reader_.int64_tensor(wanted)},
                     attention, reader_.on_layer());
  return model_.logits(hidden);
}

// The same without guesses: where this runs nothing is guessed.
at::Tensor Generator::compute_on_device(const Pass& pass) {
  std::vector<NextRow> rows;
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
    const Sequence& sequence = sequences_[slot];
    const std::int64_t place = pass.segments[slot].start;
    const std::int64_t token = place - sequence.prompt;  // of the answer
    rows.push_back({.token = sequence.answer.tokens[static_cast<std::size_t>(token)],
                    .position = input_.prepared[sequence.request].positions.next + token,
                    .place = place});
  }
  const std::int64_t before = decoder_->replayed();
  at::Tensor scores = decoder_->scores(rows, pack_sequences_, reader_.cache(), reader_.on_layer());
  if (options_.observe_pass) options_.observe_pass(decoder_->replayed() > before);
  return scores;
}

// Takes the tokens that the scores give; sequences that are done are answered and leave their slot.
void Generator::accept(const Pass& pass, const at::Tensor& scores) {
  std::vector<Fate> fates(sequences_.size(), Fate::kGoesOn);
  std::vector<std::int64_t> slots;
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
    if (pass.first_scores[slot] >= 0) slots.push_back(static_cast<std::int64_t>(slot));
  }
  for (std::size_t depth = 0; !slots.empty(); ++depth)
    slots = take_tokens(pass, depth, std::move(slots), scores, fates);
  // From the last slot down: the sequence that takes a freed slot has been looked at already.
  for (std::size_t slot = sequences_.size(); slot-- > 0;) {
    if (fates[slot] != Fate::kGoesOn) answer(static_cast<std::int64_t>(slot), fates[slot]);
  }
}

// The token behind `depth` right guesses, of each of `slots`. Returns those of them where it was
// the next guess, whose row counts, too.
std::vector<std::int64_t> Generator::take_tokens(const Pass& pass, std::size_t depth,
                                                 std::vector<std::int64_t> slots, at::Tensor scores,
                                                 std::vector<Fate>& fates) {
  std::vector<std::int64_t> rows;
  for (const std::int64_t slot : slots)
    rows.push_back(pass.first_scores[static_cast<std::size_t>(slot)] +
                   static_cast<std::int64_t>(depth));
  if (static_cast<std::int64_t>(rows.size()) != scores.size(0))
    scores = scores.index_select(0, reader_.int64_tensor(rows));
  leave_unclear(slots, scores);
  std::vector<std::int64_t> right;
  if (slots.empty()) return right;
  const std::vector<std::int32_t> tokens = sampler_->next(scores, slots);
  if (options_.observe_logits) observe(scores, slots);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto slot = static_cast<std::size_t>(slots[i]);
    Sequence& sequence = sequences_[slot];
    fates[slot] = take(sequence, tokens[i]);
    const auto& guesses = pass.guesses[slot];
    if (fates[slot] != Fate::kGoesOn || depth >= guesses.size() || guesses[depth] != tokens[i])
      continue;
    ++sequence.filled;
    ++sequence.answer.draft_tokens_taken;
    right.push_back(slots[i]);
  }
  return right;
}

// Takes out of `slots`, and of their `scores`, what is doubtful and not clear: that goes back.
void Generator::leave_unclear(std::vector<std::int64_t>& slots, at::Tensor& scores) {
  const auto sequence_in = [&](std::int64_t slot) -> Sequence& {
    return sequences_[static_cast<std::size_t>(slot)];
  };
  const auto is_doubtful = [&](std::int64_t slot) {
    return sequence_in(slot).doubtful_from.has_value();
  };
  if (std::ranges::none_of(slots, is_doubtful)) return;
  const std::vector<bool> clear = sampler_->are_clear(scores, slots);
  std::vector<std::int64_t> rows, stay;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Sequence& sequence = sequence_in(slots[i]);
    if (clear[i] || !is_doubtful(slots[i])) {
      rows.push_back(static_cast<std::int64_t>(i));
      stay.push_back(slots[i]);
      continue;
    }
    sequence.filled = *std::exchange(sequence.doubtful_from, std::nullopt);
    sequence.draft = Draft();
    sequence.again = true;
  }
  if (stay.size() == slots.size()) return;
  scores = scores.index_select(0, reader_.int64_tensor(rows));
  slots = std::move(stay);
}

Generator::Fate Generator::take(Sequence& sequence, std::int32_t token) const {
  sequence.again = false;
  if (token == kNoToken) return Fate::kNoNumbers;
  const GenerationSettings& settings = input_.requests[sequence.request].generation;
  sequence.answer.stopped = std::ranges::find(settings.stop_ids, token) != settings.stop_ids.end();
  if (sequence.answer.stopped) return Fate::kDone;
  sequence.answer.tokens.push_back(token);
  sequence.answer.ended =
      input_.events.ends && input_.events.ends(sequence.request, sequence.answer.tokens);
  if (sequence.answer.ended) return Fate::kDone;
  sequence.draft.take(token);
  const auto taken = static_cast<std::int64_t>(sequence.answer.tokens.size());
  return taken < settings.max_new_tokens ? Fate::kGoesOn : Fate::kDone;
}

void Generator::answer(std::int64_t slot, Fate fate) {
  const Sequence done = std::move(sequences_[static_cast<std::size_t>(slot)]);
  remove(slot, fate);
  if (fate == Fate::kDone) return input_.events.answered(done.request, done.answer);
  const std::size_t token = done.answer.tokens.size() + 1;
  input_.events.answered(done.request,
                         not_finite("token " + std::to_string(token) + " of the answer"));
}

void Generator::observe(const at::Tensor& scores, std::span<const std::int64_t> slots) const {
  const at::Tensor host = scores.to(at::kFloat).cpu().contiguous();
  const auto vocab = static_cast<std::size_t>(host.size(1));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Sequence& sequence = sequences_[static_cast<std::size_t>(slots[i])];
    options_.observe_logits(sequence.request,
                            static_cast<std::int64_t>(sequence.answer.tokens.size()),
                            {host.const_data_ptr<float>() + i * vocab, vocab});
  }
}

// The last sequence moves into the freed slot, so that slots 0, 1, … stay the ones in use.
void Generator::remove(std::int64_t slot, Fate fate) {
  const auto last = static_cast<std::int64_t>(sequences_.size()) - 1;
  reader_.move_last_to(slot, sequences_.back().filled, fate == Fate::kNoNumbers);
  if (slot != last) {
    sampler_->move(last, slot);
    sequences_[static_cast<std::size_t>(slot)] = std::move(sequences_.back());
  }
  sequences_.pop_back();
}

}  // namespace evalcar::engine
