#include "evaluator/engine/image_encoder.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <string>
#include <unordered_set>
#include <utility>

namespace evalcar::engine {

namespace {

// (patches, elements) float32, over the rows' own memory.
at::Tensor as_tensor(PatchRows rows) {
  float* const values = rows.values.release();
  return at::from_blob(
      values, {rows.patches, rows.elements},
      [](void* memory) { delete[] static_cast<float*>(memory); },
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
                           PictureQueue& queue, at::Device device, std::int64_t patch_budget,
                           models::OnLayer on_layer)
    : model_(model),
      images_(images),
      queue_(queue),
      device_(device),
      patch_budget_(patch_budget),
      on_layer_(std::move(on_layer)) {}

Result<PictureErrors> ImageEncoder::prepare(std::size_t pack, std::span<const std::size_t> indices,
                                            const std::stop_token& stop) {
  std::unordered_set<std::uint64_t> wanted;
  for (const std::size_t index : indices) wanted.insert(images_.key_of(index));
  const auto forgotten = [&](const auto& entry) { return !wanted.contains(entry.first); };
  std::erase_if(features_, forgotten);
  std::erase_if(errors_, forgotten);

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
    if (features_.contains(key) || errors_.contains(key) || !batched.insert(key).second) continue;
    // A pack may hold minutes of pictures.
    if (stop.stop_requested()) return stopped();
    auto rows = queue_.take({pack, index}, stop);
    if (!rows) {
      errors_.emplace(key, std::move(rows).error());
      continue;
    }
    if (batch_patches + rows->patches > patch_budget_) flush();
    batch_patches += rows->patches;
    batch.push_back(index);
    patches.push_back(as_tensor(std::move(rows).value()));
  }
  flush();
  if (stop.stop_requested()) return stopped();
  return errors_;
}

void ImageEncoder::encode(std::span<const std::size_t> indices,
                          const std::vector<at::Tensor>& patches) {
  std::vector<models::ImageGrid> grids;
  for (const std::size_t index : indices) grids.push_back(*grid_of(images_, index));
  const at::Tensor all = patches.size() == 1 ? patches.front() : at::cat(patches, 0);
  const at::Tensor features = model_.encode_images(all.to(device_), grids, on_layer_);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t tokens = *model_.image_tokens(grids[i]);  // prepare_request() asked before
    // A copy of its own: a view would keep the whole batch alive.
    features_[images_.key_of(indices[i])] = features.narrow(0, row, tokens).clone();
    row += tokens;
  }
}

const at::Tensor& ImageEncoder::features(std::size_t index) const {
  return features_.at(images_.key_of(index));
}

}  // namespace evalcar::engine
