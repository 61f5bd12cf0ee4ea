#include "evaluator/engine/picture_plan.h"

#include <set>
#include <utility>

namespace evalcar::engine {
namespace {

std::set<std::size_t> pictures_of(const Pack& pack, std::span<const Request> requests) {
  std::set<std::size_t> indices;
  for (const Group& group : pack.groups) {
    for (const std::size_t request : group.requests)
      indices.insert(requests[request].images.begin(), requests[request].images.end());
  }
  return indices;
}

}  // namespace

PicturePlan::PicturePlan(std::span<const Pack> packs, std::span<const Request> requests,
                         const ImageSource& images, std::int64_t most_patches) {
  for (const Pack& pack : packs) {
    std::map<std::uint64_t, std::size_t> batch_of;
    std::vector<std::size_t> added;
    for (const std::size_t index : pictures_of(pack, requests)) {
      const std::uint64_t key = images.key_of(index);
      const bool is_held = !batch_of_.empty() && batch_of_.back().contains(key);
      const auto [place, is_new] =
          batch_of.try_emplace(key, is_held ? batch_of_.back().at(key) : std::size_t{0});
      if (is_new && !is_held) added.push_back(index);
    }
    for (PictureBatch& batch : picture_batches(added, images, most_patches)) {
      for (const std::size_t index : batch) batch_of[images.key_of(index)] = batches_.size();
      batches_.push_back(std::move(batch));
    }
    batch_of_.push_back(std::move(batch_of));
  }
}

std::vector<PicturePlace> PicturePlan::pictures_to_make(
    const std::function<bool(std::size_t)>& is_computed, const ImageSource& images,
    const Sha256Digest& encoder, const std::function<bool(const Sha256Digest&)>& is_there) const {
  std::vector<bool> there;
  for (const PictureBatch& batch : batches_) {
    const auto key = batch_key(batch, images, encoder);
    there.push_back(key && is_there(*key));
  }
  std::vector<PicturePlace> to_make;
  std::set<std::size_t> held;  // batches that the pack computed before shows pictures of
  for (std::size_t pack = 0; pack < batch_of_.size(); ++pack) {
    if (!is_computed(pack)) continue;
    std::set<std::size_t> needed;
    for (const auto& [key, batch] : batch_of_[pack]) needed.insert(batch);
    for (const std::size_t batch : needed) {
      if (there[batch] || held.contains(batch)) continue;
      for (const std::size_t index : batches_[batch]) to_make.push_back({pack, index});
    }
    held = std::move(needed);
  }
  return to_make;
}

}  // namespace evalcar::engine
