// Rows are always packed: a prompt of 40 tokens and one of 900 stand behind each other in one
// matrix of 940 rows, and only attention looks at where one ends.
#include "evaluator/engine/pack_reader.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "evaluator/engine/device.h"
#include "evaluator/weights/lasting_memory.h"

namespace evalcar::engine {

Error cancelled_run() { return make_error(ErrorCode::kCancelled, "stopped while evaluating"); }

PackReader::PackReader(const models::Model& model, RunInput input, const PictureSupply& pictures,
                       const ReaderOptions& options)
    : model_(model),
      input_(std::move(input)),
      options_(options),
      on_layer_([this] {
        if (input_.events.advanced) input_.events.advanced();
        return !input_.stop.stop_requested();
      }),
      images_(model, input_.images, pictures, options.device, on_layer_, input_.events.encoded) {}

at::Tensor PackReader::int64_tensor(const std::vector<std::int64_t>& values) const {
  return at::tensor(at::ArrayRef<std::int64_t>(values), at::TensorOptions().dtype(at::kLong))
      .to(options_.device);
}

const Request& PackReader::request_in(std::int64_t slot) const {
  return input_.requests[requests_[static_cast<std::size_t>(slot)]];
}

const PreparedRequest& PackReader::prepared_in(std::int64_t slot) const {
  return input_.prepared[requests_[static_cast<std::size_t>(slot)]];
}

bool PackReader::wanted(std::size_t request) const {
  return !input_.events.wanted || input_.events.wanted(request);
}

Status PackReader::open(std::size_t number, Pack& pack) {
  requests_.clear();
  EVALCAR_RETURN_IF_ERROR(encode_images(number, pack));
  for (const Group& group : pack.groups)
    requests_.insert(requests_.end(), group.requests.begin(), group.requests.end());
  if (!requests_.empty()) allocate_cache(pack);
  return {};
}

// Takes the requests whose pictures cannot be read out of the pack, and those that are not wanted,
// which one of the former may have decided.
Status PackReader::encode_images(std::size_t number, Pack& pack) {
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
      indices.insert(indices.end(), input_.requests[request].images.begin(),
                     input_.requests[request].images.end());
  }
  std::ranges::sort(indices);  // the order in which the source can read them one after the other
  EVALCAR_ASSIGN_OR_RETURN(const PictureErrors errors,
                           images_.prepare(number, indices, input_.stop));
  if (errors.empty()) return {};
  const auto failed = [&](std::size_t request) {
    for (const std::size_t image : input_.requests[request].images) {
      const auto error = errors.find(images_.key_of(image));
      if (error == errors.end()) continue;
      input_.events.answered(request, error->second);
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
void PackReader::allocate_cache(const Pack& pack) {
  const models::ModelInfo& info = model_.info();
  const std::int64_t slots = std::max(pack.sequences, options_.slots);
  const std::int64_t capacity = std::max(pack.capacity, options_.capacity);
  const std::int64_t half = info.layers * slots * capacity * info.kv_heads * info.head_dim;
  if (!cache_memory_.defined() || cache_memory_.numel() < 2 * half) {
    cache_ = {};                   // its views own the memory, too
    cache_memory_ = at::Tensor();  // given back before the larger one is asked for, to the driver
    if (!options_.device.is_cpu()) release_unused_memory(options_.device);
    const auto bytes = 2 * half * static_cast<std::int64_t>(c10::elementSize(options_.dtype));
    cache_memory_ = weights::lasting_memory(bytes, options_.device).view(options_.dtype);
  }
  const auto part = [&](std::int64_t start) {
    return cache_memory_.narrow(0, start, half)
        .view({info.layers, slots, capacity, info.kv_heads, info.head_dim});
  };
  cache_ = {.keys = part(0), .values = part(half)};
  cache_.keys.zero_();
  cache_.values.zero_();
}

Status PackReader::read_prefixes(const Pack& pack) {
  std::vector<Reading> prefixes;
  std::int64_t slot = 0;
  for (const Group& group : pack.groups) {
    if (group.shared > 0) prefixes.push_back({.slot = slot, .begin = 0, .end = group.shared});
    slot += static_cast<std::int64_t>(group.requests.size());
  }
  EVALCAR_RETURN_IF_ERROR(read(std::move(prefixes), {}));
  slot = 0;
  for (const Group& group : pack.groups) {
    const auto size = static_cast<std::int64_t>(group.requests.size());
    for (std::int64_t i = 1; i < size && group.shared > 0; ++i)
      copy_slot(slot, slot + i, group.shared);
    slot += size;
  }
  return {};
}

void PackReader::copy_slot(std::int64_t from, std::int64_t to, std::int64_t length) {
  for (const at::Tensor& half : {cache_.keys, cache_.values})
    half.select(1, to).narrow(1, 0, length).copy_(half.select(1, from).narrow(1, 0, length));
}

// Where attention is one call for all slots, what is behind a sequence's end is masked as far as
// the longest one goes, and a masked NaN is one all the same.
void PackReader::move_last_to(std::int64_t slot, std::int64_t length, bool clear) {
  const auto last = static_cast<std::int64_t>(requests_.size()) - 1;
  if (slot != last) {
    copy_slot(last, slot, length);
    for (const at::Tensor& half : {cache_.keys, cache_.values}) {
      if (clear) half.select(1, slot).narrow(1, length, cache_.capacity() - length).zero_();
    }
    requests_[static_cast<std::size_t>(slot)] = requests_.back();
  }
  requests_.pop_back();
}

// A piece ends where the branches begin: what stands in a line needs no mask.
Status PackReader::read(std::vector<Reading> work, const OnRows& on_rows) {
  std::size_t next = 0;
  while (next < work.size()) {
    std::vector<Reading> batch;
    std::vector<models::Segment> segments;
    std::vector<ReadRow> wanted_rows;
    std::int64_t rows = 0;
    while (next < work.size() && rows < options_.prefill_tokens) {
      Reading& reading = work[next];
      Reading piece = reading;
      piece.end = std::min(reading.end, reading.begin + options_.prefill_tokens - rows);
      const auto line = static_cast<std::int64_t>(request_in(piece.slot).tokens.size());
      if (piece.begin < line) piece.end = std::min(piece.end, line);
      const auto [first, last] =
          std::ranges::equal_range(reading.wanted, 0, {}, [&](std::int64_t place) {
            return place < piece.begin ? -1 : (place < piece.end ? 0 : 1);
          });
      piece.wanted.assign(first, last);
      for (const std::int64_t place : piece.wanted) wanted_rows.push_back({piece.slot, place});
      segments.push_back(segment_of(piece, rows));
      rows += piece.end - piece.begin;
      reading.begin = piece.end;
      if (piece.end == reading.end) ++next;
      batch.push_back(std::move(piece));
    }
    const at::Tensor hidden = read_batch(batch, segments);
    if (input_.stop.stop_requested()) return cancelled_run();
    if (!wanted_rows.empty()) EVALCAR_RETURN_IF_ERROR(on_rows(hidden, wanted_rows));
  }
  return {};
}

models::Segment PackReader::segment_of(const Reading& piece, std::int64_t row) const {
  models::Segment segment{
      .slot = piece.slot, .start = piece.begin, .length = piece.end - piece.begin, .row = row};
  const auto line = static_cast<std::int64_t>(request_in(piece.slot).tokens.size());
  if (piece.begin < line) return segment;
  const auto& begins = prepared_in(piece.slot).branch_begin;
  segment.shared = line;
  segment.own.assign(begins.begin() + (piece.begin - line), begins.begin() + (piece.end - line));
  return segment;
}

at::Tensor PackReader::read_batch(std::span<const Reading> batch,
                                  std::span<const models::Segment> segments) {
  std::vector<std::int64_t> positions, rows_wanted;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (const Reading& reading : batch) {
      const auto& places = prepared_in(reading.slot).positions.axes[axis];
      positions.insert(positions.end(), places.begin() + reading.begin,
                       places.begin() + reading.end);
    }
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    for (const std::int64_t place : batch[i].wanted)
      rows_wanted.push_back(segments[i].row + place - batch[i].begin);
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
models::TextBatch PackReader::embed(std::span<const Reading> batch,
                                    std::span<const models::Segment> segments) {
  std::vector<std::int64_t> ids;
  for (const Reading& reading : batch) {
    const std::vector<std::int32_t>& line = prepared_in(reading.slot).line.empty()
                                                ? request_in(reading.slot).tokens
                                                : prepared_in(reading.slot).line;
    ids.insert(ids.end(), line.begin() + reading.begin, line.begin() + reading.end);
  }
  const std::int64_t hidden = model_.info().hidden;
  const std::int64_t deeper = model_.info().deepstack * hidden;
  models::TextBatch text{.embeddings = model_.embed(int64_tensor(ids))};
  const auto place = [&](at::Tensor& rows, std::int64_t row, const at::Tensor& features) {
    rows.narrow(0, row, features.size(0)).copy_(features);
  };
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& spans = prepared_in(batch[i].slot).positions.images;
    for (std::size_t image = 0; image < spans.size(); ++image) {
      const std::int64_t first = std::max(spans[image].first, batch[i].begin);
      const std::int64_t last = std::min(spans[image].first + spans[image].count, batch[i].end);
      if (first >= last) continue;
      const std::int64_t row = segments[i].row + first - batch[i].begin;
      const at::Tensor features = images_.features(request_in(batch[i].slot).images[image])
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

}  // namespace evalcar::engine
