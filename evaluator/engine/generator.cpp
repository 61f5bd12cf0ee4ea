// A pack is computed in four strides: its pictures go through the tower; what a group shares is
// read once, and its keys and values are copied to the slots of the others; the rest of every
// prompt is read; then all sequences decode together, one token a step. Rows are always packed: a
// prompt of 40 tokens and one of 900 stand behind each other in one matrix of 940 rows, and only
// attention looks at where one ends.
#include "evaluator/engine/generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace evalcar::engine {
namespace {

// "not finite" is what evaluation.cpp tells it by.
Error not_finite(std::int64_t step) {
  return make_error(ErrorCode::kInternal,
                    "not finite: the model's scores for token " + std::to_string(step) +
                        " of the answer are NaN or infinite: a diverged training, or an overflow "
                        "of evaluate.dtype");
}

Error cancelled() { return make_error(ErrorCode::kCancelled, "stopped while generating"); }

Status check_request(const Request& request, std::int64_t vocab) {
  if (request.tokens.empty())
    return make_error(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  for (std::size_t i = 0; i < request.tokens.size(); ++i) {
    if (request.tokens[i] < 0 || request.tokens[i] >= vocab)
      return make_error(ErrorCode::kInvalidArgument,
                        "token " + std::to_string(i) + " is " + std::to_string(request.tokens[i]) +
                            ", and the model knows " + std::to_string(vocab) +
                            ": the tokenizer does not belong to the model");
  }
  const GenerationSettings& settings = request.generation;
  if (settings.max_new_tokens < 1 || settings.max_new_tokens > (1 << 20))
    return make_error(ErrorCode::kInvalidArgument,
                      "max_new_tokens is " + std::to_string(settings.max_new_tokens));
  if (!(settings.repetition_penalty > 0) || !(settings.temperature >= 0) || !(settings.top_p > 0))
    return make_error(ErrorCode::kInvalidArgument,
                      "repetition_penalty and top_p must be above 0, temperature at least 0");
  return {};
}

}  // namespace

Result<PreparedRequest> prepare_request(const models::Model& model, const Request& request,
                                        const ImageSource& images) {
  EVALCAR_RETURN_IF_ERROR(check_request(request, model.info().vocab));
  std::vector<models::ImageGrid> grids;
  for (const std::size_t image : request.images) {
    EVALCAR_ASSIGN_OR_RETURN(const models::ImageGrid grid, grid_of(images, image));
    if (auto tokens = model.image_tokens(grid); !tokens.has_value())
      return with_context(std::move(tokens).error(), "picture " + std::to_string(image));
    grids.push_back(grid);
  }
  EVALCAR_ASSIGN_OR_RETURN(models::PromptPositions positions,
                           model.positions(request.tokens, grids));
  PlanRequest plan{
      .tokens = request.tokens, .images = {}, .max_new_tokens = request.generation.max_new_tokens};
  for (std::size_t j = 0; j < request.images.size(); ++j)
    plan.images.push_back({positions.images[j].first, images.key_of(request.images[j])});
  return PreparedRequest{std::move(positions), std::move(plan)};
}

Generator::Generator(const models::Model& model, std::span<const Request> requests,
                     std::span<const PreparedRequest> prepared, const ImageSource& images,
                     PictureQueue& pictures, const RunEvents& events, std::stop_token stop,
                     GeneratorOptions options)
    : model_(model),
      requests_(requests),
      prepared_(prepared),
      events_(events),
      stop_(std::move(stop)),
      on_layer_([this] {
        if (events_.advanced) events_.advanced();
        return !stop_.stop_requested();
      }),
      images_(model, images, pictures, options.device, options.patch_budget, on_layer_),
      options_(std::move(options)) {}

at::Tensor Generator::int64_tensor(const std::vector<std::int64_t>& values) const {
  return at::tensor(at::ArrayRef<std::int64_t>(values), at::TensorOptions().dtype(at::kLong))
      .to(options_.device);
}

bool Generator::wanted(std::size_t request) const {
  return !events_.wanted || events_.wanted(request);
}

Status Generator::run_pack(std::size_t number, Pack pack) {
  EVALCAR_RETURN_IF_ERROR(encode_images(number, pack));
  if (pack.groups.empty()) return {};
  sequences_.clear();
  for (const Group& group : pack.groups) {
    for (const std::size_t request : group.requests) sequences_.push_back({.request = request});
  }
  allocate_cache(pack);
  sampler_.emplace(pack.sequences, model_.info().vocab, options_.device);
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
    sampler_->start(static_cast<std::int64_t>(slot), requests_[sequences_[slot].request]);
  }
  EVALCAR_RETURN_IF_ERROR(read_prompts(pack));
  accept(std::exchange(scores_, at::Tensor()));
  while (!sequences_.empty()) {
    const at::Tensor scores = decode_step();
    if (stop_.stop_requested()) return cancelled();
    accept(scores);
  }
  return {};
}

// Takes the requests whose pictures cannot be read out of the pack, and those that are not wanted,
// which one of the former may have decided.
Status Generator::encode_images(std::size_t number, Pack& pack) {
  const auto remove = [&](const auto& which) {
    for (Group& group : pack.groups)
      pack.sequences -= static_cast<std::int64_t>(std::erase_if(group.requests, which));
    std::erase_if(pack.groups, [](const Group& group) { return group.requests.empty(); });
  };
  const auto unwanted = [&](std::size_t request) { return !wanted(request); };
  remove(unwanted);
  std::vector<std::size_t> indices;
  for (const Group& group : pack.groups) {
    for (const std::size_t request : group.requests)
      indices.insert(indices.end(), requests_[request].images.begin(),
                     requests_[request].images.end());
  }
  std::ranges::sort(indices);  // the order in which the source can read them one after the other
  EVALCAR_ASSIGN_OR_RETURN(const PictureErrors errors, images_.prepare(number, indices, stop_));
  if (errors.empty()) return {};
  const auto failed = [&](std::size_t request) {
    for (const std::size_t image : requests_[request].images) {
      const auto error = errors.find(images_.key_of(image));
      if (error == errors.end()) continue;
      events_.answered(request, error->second);
      return true;
    }
    return false;
  };
  remove(failed);
  remove(unwanted);
  return {};
}

// Zeros, because a masked position still multiplies its value by 0, and what memory held before may
// be NaN.
void Generator::allocate_cache(const Pack& pack) {
  const models::ModelInfo& info = model_.info();
  const std::int64_t half =
      info.layers * pack.sequences * pack.capacity * info.kv_heads * info.head_dim;
  if (!cache_memory_.defined() || cache_memory_.numel() < 2 * half) {
    cache_ = {};                   // its views own the memory, too
    cache_memory_ = at::Tensor();  // given back before the larger one is asked for
    cache_memory_ =
        at::empty({2 * half}, at::TensorOptions().dtype(options_.dtype).device(options_.device));
  }
  const auto part = [&](std::int64_t start) {
    return cache_memory_.narrow(0, start, half)
        .view({info.layers, pack.sequences, pack.capacity, info.kv_heads, info.head_dim});
  };
  cache_ = {.keys = part(0), .values = part(half)};
  cache_.keys.zero_();
  cache_.values.zero_();
}

Status Generator::read_prompts(const Pack& pack) {
  std::vector<Reading> prefixes, rests;
  std::int64_t slot = 0;
  for (const Group& group : pack.groups) {
    if (group.shared > 0) prefixes.push_back({.slot = slot, .begin = 0, .end = group.shared});
    for (const std::size_t request : group.requests) {
      const auto length = static_cast<std::int64_t>(requests_[request].tokens.size());
      sequences_[static_cast<std::size_t>(slot)].filled = length;
      rests.push_back({.slot = slot++, .begin = group.shared, .end = length, .last = true});
    }
  }
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const at::Tensor nothing, read(std::move(prefixes)));
  slot = 0;
  for (const Group& group : pack.groups) {
    const auto size = static_cast<std::int64_t>(group.requests.size());
    for (std::int64_t i = 1; i < size && group.shared > 0; ++i)
      copy_prefix(slot, slot + i, group.shared);
    slot += size;
  }
  EVALCAR_ASSIGN_OR_RETURN(const at::Tensor hidden, read(std::move(rests)));
  scores_ = model_.logits(hidden);
  return {};
}

void Generator::copy_prefix(std::int64_t from, std::int64_t to, std::int64_t length) {
  for (const at::Tensor& half : {cache_.keys, cache_.values})
    half.select(1, to).narrow(1, 0, length).copy_(half.select(1, from).narrow(1, 0, length));
}

// Cuts the work into batches of at most prefill_tokens rows, in order; a long prompt continues in
// the next. Returns the final hidden states of the readings that want them, in order: (k, hidden).
Result<at::Tensor> Generator::read(std::vector<Reading> work) {
  std::vector<at::Tensor> hidden;
  std::size_t next = 0;
  while (next < work.size()) {
    std::vector<Reading> batch;
    std::vector<models::Segment> segments;
    std::int64_t rows = 0;
    while (next < work.size() && rows < options_.prefill_tokens) {
      Reading& reading = work[next];
      Reading piece = reading;
      piece.end = std::min(reading.end, reading.begin + options_.prefill_tokens - rows);
      piece.last = reading.last && piece.end == reading.end;
      segments.push_back({.slot = piece.slot,
                          .start = piece.begin,
                          .length = piece.end - piece.begin,
                          .row = rows});
      rows += piece.end - piece.begin;
      batch.push_back(piece);
      reading.begin = piece.end;
      if (piece.end == reading.end) ++next;
    }
    hidden.push_back(read_batch(batch, segments));
    if (stop_.stop_requested()) return cancelled();
  }
  if (hidden.empty()) return at::Tensor();
  return hidden.size() == 1 ? hidden.front() : at::cat(hidden, 0);
}

at::Tensor Generator::read_batch(std::span<const Reading> batch,
                                 std::span<const models::Segment> segments) {
  std::vector<std::int64_t> positions, rows_wanted;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (const Reading& reading : batch) {
      const std::size_t request = sequences_[static_cast<std::size_t>(reading.slot)].request;
      const auto& places = prepared_[request].positions.axes[axis];
      positions.insert(positions.end(), places.begin() + reading.begin,
                       places.begin() + reading.end);
    }
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].last) rows_wanted.push_back(segments[i].row + segments[i].length - 1);
  }
  const models::CachedAttention attention(segments, cache_, options_.attention,
                                          model_.info().window);
  models::TextBatch text = embed(batch, segments);
  text.positions = int64_tensor(positions).view({3, -1});
  text.wanted = int64_tensor(rows_wanted);
  return model_.forward(text, attention, on_layer_);
}

// Words from the table, then each picture's features over its placeholders (or the part of them
// that lies in this batch).
models::TextBatch Generator::embed(std::span<const Reading> batch,
                                   std::span<const models::Segment> segments) {
  std::vector<std::int64_t> ids;
  for (const Reading& reading : batch) {
    const Request& request = requests_[sequences_[static_cast<std::size_t>(reading.slot)].request];
    ids.insert(ids.end(), request.tokens.begin() + reading.begin,
               request.tokens.begin() + reading.end);
  }
  const std::int64_t hidden = model_.info().hidden;
  const std::int64_t deeper = model_.info().deepstack * hidden;
  models::TextBatch text{.embeddings = model_.embed(int64_tensor(ids))};
  const auto place = [&](at::Tensor& rows, std::int64_t row, const at::Tensor& features) {
    rows.narrow(0, row, features.size(0)).copy_(features);
  };
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::size_t request = sequences_[static_cast<std::size_t>(batch[i].slot)].request;
    const auto& spans = prepared_[request].positions.images;
    for (std::size_t image = 0; image < spans.size(); ++image) {
      const std::int64_t first = std::max(spans[image].first, batch[i].begin);
      const std::int64_t last = std::min(spans[image].first + spans[image].count, batch[i].end);
      if (first >= last) continue;
      const std::int64_t row = segments[i].row + first - batch[i].begin;
      const at::Tensor features = images_.features(requests_[request].images[image])
                                      .narrow(0, first - spans[image].first, last - first);
      place(text.embeddings, row, features.narrow(1, 0, hidden));
      if (deeper == 0) continue;
      if (!text.deepstack.defined())
        text.deepstack = at::zeros({text.embeddings.size(0), deeper}, text.embeddings.options());
      place(text.deepstack, row, features.narrow(1, hidden, deeper));
    }
  }
  return text;
}

// Feeds every sequence's last token. Returns the scores, (sequences, vocab).
at::Tensor Generator::decode_step() {
  std::vector<std::int64_t> ids, positions, rows_wanted;
  std::vector<models::Segment> segments;
  for (std::size_t slot = 0; slot < sequences_.size(); ++slot) {
    Sequence& sequence = sequences_[slot];
    const auto index = static_cast<std::int64_t>(slot);
    ids.push_back(sequence.last);
    positions.push_back(prepared_[sequence.request].positions.next + sequence.step - 1);
    rows_wanted.push_back(index);
    segments.push_back({.slot = index, .start = sequence.filled++, .length = 1, .row = index});
  }
  const models::CachedAttention attention(segments, cache_, options_.attention,
                                          model_.info().window);
  const at::Tensor hidden =
      model_.forward({.embeddings = model_.embed(int64_tensor(ids)),
                      .positions = int64_tensor(positions).unsqueeze(0).expand({3, -1}),
                      .wanted = int64_tensor(rows_wanted)},
                     attention, on_layer_);
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
    const GenerationSettings& settings = requests_[sequence.request].generation;
    ++sequence.step;
    if (tokens[slot] == kNoToken) {
      const Sequence failed = std::move(sequence);
      remove(static_cast<std::int64_t>(slot));
      events_.answered(failed.request, not_finite(failed.step));
      continue;
    }
    sequence.last = tokens[slot];
    sequence.answer.stopped =
        std::ranges::find(settings.stop_ids, tokens[slot]) != settings.stop_ids.end();
    if (!sequence.answer.stopped) sequence.answer.tokens.push_back(tokens[slot]);
    if (!sequence.answer.stopped && sequence.step < settings.max_new_tokens) continue;
    const Sequence done = std::move(sequence);
    remove(static_cast<std::int64_t>(slot));
    events_.answered(done.request, done.answer);
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
  if (slot != last) {
    copy_prefix(last, slot, sequences_.back().filled);
    sampler_->move(last, slot);
    sequences_[static_cast<std::size_t>(slot)] = std::move(sequences_.back());
  }
  sequences_.pop_back();
}

}  // namespace evalcar::engine
