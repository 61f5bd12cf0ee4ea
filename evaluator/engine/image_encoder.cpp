#include "evaluator/engine/image_encoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <set>
#include <string>
#include <utility>

namespace evalcar::engine {

namespace {

// (patches, elements) float32, over the rows' own memory.
at::Tensor as_tensor(const PatchRows& rows) {
  return at::from_blob(
      rows.values.get(), {rows.patches, rows.elements}, [values = rows.values](void*) {},
      at::TensorOptions().dtype(at::kFloat));
}

Error stopped() { return make_error(ErrorCode::kCancelled, "stopped while reading pictures"); }

}  // namespace

Result<models::ImageGrid> grid_of(const ImageSource& images, std::size_t index) {
  if (index >= images.size())
    return make_error(ErrorCode::kInvalidArgument, "picture " + std::to_string(index) +
                                                       " does not exist; there are " +
                                                       std::to_string(images.size()));
  const vision::PreparedSize size = images.size_of(index);
  return models::ImageGrid{size.grid_t, size.grid_h, size.grid_w, size.picture.height,
                           size.picture.width};
}

ImageEncoder::ImageEncoder(const models::Model& model, const ImageSource& images,
                           const PictureSupply& supply, at::Device device, models::OnLayer on_layer,
                           std::function<void(std::size_t, bool)> told)
    : model_(model),
      images_(images),
      supply_(supply),
      device_(device),
      on_layer_(std::move(on_layer)),
      told_(std::move(told)) {}

Result<PictureErrors> ImageEncoder::prepare(std::size_t pack, std::span<const std::size_t> indices,
                                            const std::stop_token& stop) {
  Shown shown;
  for (const std::size_t index : indices) {
    const std::uint64_t key = images_.key_of(index);
    shown.emplace(key, supply_.plan.batch_of(pack, key));
  }
  // What stood in another batch has other last bits: packs between that one and this were left out.
  std::erase_if(held_, [&](const auto& entry) {
    const auto planned = shown.find(entry.first);
    return planned == shown.end() || planned->second != entry.second.batch;
  });
  std::set<std::size_t> missing;  // in the order of the plan
  for (const auto& [key, batch] : shown) {
    if (!held_.contains(key)) missing.insert(batch);
  }
  for (const std::size_t batch : missing) EVALCAR_RETURN_IF_ERROR(ready(pack, batch, shown, stop));
  if (stop.stop_requested()) return stopped();
  PictureErrors errors;
  for (const auto& [key, held] : held_) {
    if (!held.features.has_value()) errors.emplace(key, held.features.error());
  }
  return errors;
}

Status ImageEncoder::ready(std::size_t pack, std::size_t number, const Shown& shown,
                           const std::stop_token& stop) {
  const PictureBatch& batch = supply_.plan.batches()[number];
  const auto key = batch_key(batch, images_, supply_.encoder);
  if (const at::Tensor kept = key ? supply_.encoded.find(*key) : at::Tensor(); kept.defined()) {
    split(number, batch, shown, kept.to(device_));
    if (on_layer_) on_layer_();
    if (told_) told_(batch.size(), /*reused=*/true);
    return {};
  }
  PictureBatch readable;
  std::vector<PatchRows> patches;
  for (const std::size_t index : batch) {
    if (stop.stop_requested()) return stopped();  // a pack may hold minutes of pictures
    auto rows = supply_.queue.take({pack, index}, stop);
    if (!rows) {
      if (const std::uint64_t picture = images_.key_of(index); shown.contains(picture))
        held_.insert_or_assign(picture, Held{number, std::move(rows).error()});
      continue;
    }
    readable.push_back(index);
    patches.push_back(std::move(rows).value());
  }
  if (readable.empty()) return {};
  const at::Tensor features = encode(readable, std::move(patches));
  if (stop.stop_requested()) return stopped();  // what the tower left is of no use
  split(number, readable, shown, features);
  // Under this key a batch is whole.
  if (key && readable.size() == batch.size()) supply_.encoded.keep(*key, features);
  if (told_) told_(readable.size(), /*reused=*/false);
  return {};
}

// (tokens, columns) of all of them, one below the other.
at::Tensor ImageEncoder::encode(std::span<const std::size_t> batch,
                                std::vector<PatchRows> patches) const {
  std::vector<models::ImageGrid> grids;
  for (const std::size_t index : batch) grids.push_back(*grid_of(images_, index));
  return model_.encode_images(on_device(std::move(patches)), grids, on_layer_);
}

// (patches, elements) of all of them. Each goes straight to its place: one below the other on the
// host they would be written and read once more. What they lay in is given back.
at::Tensor ImageEncoder::on_device(std::vector<PatchRows> patches) const {
  if (device_.is_cpu() && patches.size() == 1) return as_tensor(patches.front());
  std::int64_t rows = 0;
  for (const PatchRows& each : patches) rows += each.patches;
  const at::Tensor all = at::empty({rows, patches.front().elements},
                                   at::TensorOptions().dtype(at::kFloat).device(device_));
  std::int64_t row = 0;
  for (const PatchRows& each : patches) {
    const bool is_kept = supply_.pages != nullptr && supply_.pages->holds(each.values.get());
    all.narrow(0, row, each.patches).copy_(as_tensor(each), /*non_blocking=*/is_kept);
    if (is_kept) supply_.pages->sent(each.values.get());
    row += each.patches;
  }
  return all;
}

void ImageEncoder::split(std::size_t number, std::span<const std::size_t> batch, const Shown& shown,
                         const at::Tensor& features) {
  std::int64_t row = 0;
  for (const std::size_t index : batch) {
    // prepare_request() asked before
    const std::int64_t tokens = *model_.image_tokens(*grid_of(images_, index));
    // A copy of its own: a view would keep the whole batch alive.
    if (const std::uint64_t key = images_.key_of(index); shown.contains(key))
      held_.insert_or_assign(key, Held{number, features.narrow(0, row, tokens).clone()});
    row += tokens;
  }
}

const at::Tensor& ImageEncoder::features(std::size_t index) const {
  return *held_.at(images_.key_of(index)).features;
}

}  // namespace evalcar::engine
