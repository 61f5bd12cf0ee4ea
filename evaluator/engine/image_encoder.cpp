#include "evaluator/engine/image_encoder.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

namespace evalcar::engine {

namespace {

Error stopped() { return make_error(ErrorCode::kCancelled, "stopped while reading pictures"); }

}  // namespace

Result<models::ImageGrid> grid_of(const ImageSource& images, std::size_t index) {
  if (index >= images.size())
    return make_error(ErrorCode::kInvalidArgument, "picture " + std::to_string(index) +
                                                       " does not exist; there are " +
                                                       std::to_string(images.size()));
  const vision::PreparedSize size = images.size_of(index);
  return models::ImageGrid{size.grid_t, size.grid_h, size.grid_w};
}

ImageEncoder::ImageEncoder(const models::Model& model, const ImageSource& images,
                           const vision::ProcessorSettings& processor, at::Device device,
                           std::int64_t patch_budget, models::OnLayer on_layer)
    : model_(model),
      images_(images),
      processor_(processor),
      device_(device),
      patch_budget_(patch_budget),
      on_layer_(std::move(on_layer)) {}

Result<at::Tensor> ImageEncoder::patches_of(std::size_t index) const {
  EVALCAR_ASSIGN_OR_RETURN(const vision::PreparedImage image, images_.load(index));
  EVALCAR_ASSIGN_OR_RETURN(const models::ImageGrid grid, grid_of(images_, index));
  const models::ImageGrid made{image.grid_t, image.grid_h, image.grid_w};
  if (made != grid || image.height != grid.h * processor_.patch_size ||
      image.width != grid.w * processor_.patch_size ||
      image.rgb.size() !=
          static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width) * 3)
    return make_error(ErrorCode::kInternal,
                      "picture " + std::to_string(index) + " is not of the promised size");
  at::Tensor patches = at::empty({grid.patches(), model_.info().patch_elements},
                                 at::TensorOptions().dtype(at::kFloat));
  vision::write_patches(image, processor_, patches.mutable_data_ptr<float>());
  return patches;
}

Result<PictureErrors> ImageEncoder::prepare(std::span<const std::size_t> indices,
                                            const std::stop_token& stop) {
  PictureErrors errors;
  std::unordered_set<std::uint64_t> wanted;
  for (const std::size_t index : indices) wanted.insert(images_.key_of(index));
  std::erase_if(features_, [&](const auto& entry) { return !wanted.contains(entry.first); });

  std::vector<std::size_t> batch;
  std::vector<at::Tensor> patches;
  std::int64_t batch_patches = 0;
  std::unordered_set<std::uint64_t> batched;
  const auto flush = [&] {
    if (!batch.empty()) encode(batch, patches);
    batch.clear();
    patches.clear();
    batch_patches = 0;
  };
  for (const std::size_t index : indices) {
    const std::uint64_t key = images_.key_of(index);
    if (features_.contains(key) || !batched.insert(key).second) continue;
    // A pack may hold minutes of pictures.
    if (stop.stop_requested()) return stopped();
    auto image = patches_of(index);
    on_layer_();
    if (!image) {
      errors.emplace(key, std::move(image).error());
      continue;
    }
    if (batch_patches + image->size(0) > patch_budget_) flush();
    batch_patches += image->size(0);
    batch.push_back(index);
    patches.push_back(std::move(image).value());
  }
  flush();
  if (stop.stop_requested()) return stopped();
  return errors;
}

void ImageEncoder::encode(std::span<const std::size_t> indices,
                          const std::vector<at::Tensor>& patches) {
  std::vector<models::ImageGrid> grids;
  for (const std::size_t index : indices) grids.push_back(*grid_of(images_, index));
  const at::Tensor all = patches.size() == 1 ? patches.front() : at::cat(patches, 0);
  const at::Tensor features = model_.encode_images(all.to(device_), grids, on_layer_);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t tokens = grids[i].tokens(model_.info().merge);
    // A copy of its own: a view would keep the whole batch alive.
    features_[images_.key_of(indices[i])] = features.narrow(0, row, tokens).clone();
    row += tokens;
  }
}

const at::Tensor& ImageEncoder::features(std::size_t index) const {
  return features_.at(images_.key_of(index));
}

}  // namespace evalcar::engine
