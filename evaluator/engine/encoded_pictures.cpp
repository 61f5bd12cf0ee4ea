#include "evaluator/engine/encoded_pictures.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace evalcar::engine {
namespace {

// Undefined where there is no memory: that is nobody's error.
at::Tensor host_tensor_like(const at::Tensor& tensor) {
  try {
    return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

EncodedPictures::EncodedPictures(std::uint64_t most_bytes,
                                 std::function<std::uint64_t()> free_bytes)
    : most_bytes_(most_bytes), free_bytes_(std::move(free_bytes)) {}

void EncodedPictures::begin(const std::string& tower) {
  const auto known = std::ranges::find(towers_, tower, &Tower::hash);
  if (known != towers_.end()) {
    ++known->loads;
    std::rotate(towers_.begin(), known, std::next(known));
    new_in_a_row_ = 0;
  } else {
    towers_.push_front({.hash = tower});
    ++new_in_a_row_;
    if (towers_.size() > kMostTowers) {
      drop_tower(towers_.back().hash);
      towers_.pop_back();
    }
  }
  if (!is_worth_keeping()) clear();
  // What was free when it was kept may be others' by now.
  const std::uint64_t most = limit();
  const auto number = [](const auto& entry) { return entry.second.number; };
  while (bytes_ > most) drop(std::ranges::min_element(entries_, {}, number));
}

bool EncodedPictures::mark(const Sha256Digest& batch) { return find(batch).defined(); }

at::Tensor EncodedPictures::find(const Sha256Digest& batch) {
  const auto entry = entries_.find(batch);
  if (entry == entries_.end()) return {};
  entry->second.asked_at = towers_.front().loads;
  return entry->second.features;
}

void EncodedPictures::keep(const Sha256Digest& batch, const at::Tensor& features) {
  if (!keeping_ || towers_.empty() || !is_worth_keeping() || entries_.contains(batch)) return;
  if (!make_room(features.nbytes())) return;
  at::Tensor copy = host_tensor_like(features);
  if (!copy.defined()) return;
  copy.copy_(features);
  bytes_ += copy.nbytes();
  entries_.emplace(batch, Entry{.features = std::move(copy),
                                .tower = towers_.front().hash,
                                .asked_at = towers_.front().loads,
                                .number = next_number_++});
}

bool EncodedPictures::clear() {
  const bool any = !entries_.empty();
  entries_.clear();
  bytes_ = 0;
  return any;
}

std::uint64_t EncodedPictures::limit() const {
  return most_bytes_ == 0 ? 0 : std::min(most_bytes_, (bytes_ + free_bytes_()) / 4);
}

bool EncodedPictures::is_worth_keeping() const { return new_in_a_row_ <= kMostTowers; }

bool EncodedPictures::make_room(std::uint64_t needed) {
  const std::uint64_t most = limit();
  if (needed > most) return false;
  std::vector<Entries::iterator> may_go;
  for (auto entry = entries_.begin(); bytes_ + needed > most && entry != entries_.end(); ++entry) {
    if (this->may_go(entry->second)) may_go.push_back(entry);
  }
  std::ranges::sort(may_go, {}, [](const auto& entry) { return entry->second.number; });
  for (const auto& entry : may_go) {
    if (bytes_ + needed <= most) break;
    drop(entry);
  }
  return bytes_ + needed <= most;
}

bool EncodedPictures::may_go(const Entry& entry) const {
  const Tower& now = towers_.front();
  const Tower& of_entry = *std::ranges::find(towers_, entry.tower, &Tower::hash);
  if (of_entry.hash == now.hash) return entry.asked_at + 1 < now.loads;
  return now.came_again() && !of_entry.came_again();
}

EncodedPictures::Entries::iterator EncodedPictures::drop(Entries::iterator entry) {
  bytes_ -= entry->second.features.nbytes();
  return entries_.erase(entry);
}

void EncodedPictures::drop_tower(const std::string& hash) {
  for (auto entry = entries_.begin(); entry != entries_.end();)
    entry = entry->second.tower == hash ? drop(entry) : std::next(entry);
}

}  // namespace evalcar::engine
