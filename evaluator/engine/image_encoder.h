// Pictures of a pack, from the source through the vision tower.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "evaluator/engine/encoded_pictures.h"
#include "evaluator/engine/engine.h"
#include "evaluator/engine/picture_batches.h"
#include "evaluator/engine/picture_queue.h"
#include "evaluator/models/model.h"

namespace evalcar::engine {

/// Why pictures cannot be read, by ImageSource::key_of.
using PictureErrors = std::unordered_map<std::uint64_t, Error>;

/// Where a run's pictures come from. What it refers to outlives the run.
struct PictureSupply {
  PictureQueue& queue;
  EncodedPictures& encoded;    ///< what earlier runs left
  const Sha256Digest encoder;  ///< of batch_key()
};

/// Keeps the embeddings of the pictures of the current pack, and what is wrong with others of it.
/// Not thread-safe.
class ImageEncoder {
 public:
  /// The references must outlive the object. `patch_budget`: patches that go through the tower
  /// together (a larger picture goes alone). `on_layer` is called after each picture, too.
  /// `told`: RunEvents::encoded.
  ImageEncoder(const models::Model& model, const ImageSource& images, const PictureSupply& supply,
               at::Device device, std::int64_t patch_budget, models::OnLayer on_layer,
               std::function<void(std::size_t, bool)> told);

  /// Encodes the pictures of a pack, given in ascending order, that are not there yet, and forgets
  /// all others. Packs are asked for in their order. Returns what is wrong with those that cannot
  /// be read. kCancelled when stopped. May throw c10::Error.
  Result<PictureErrors> prepare(std::size_t pack, std::span<const std::size_t> indices,
                                const std::stop_token& stop);
  /// ImageSource::key_of
  std::uint64_t key_of(std::size_t index) const { return images_.key_of(index); }
  /// (tokens, hidden) of a picture that was prepared.
  const at::Tensor& features(std::size_t index) const;

 private:
  Status ready(std::size_t pack, const PictureBatch& batch, const std::stop_token& stop);
  at::Tensor encode(std::span<const std::size_t> batch,
                    const std::vector<at::Tensor>& patches) const;
  void split(std::span<const std::size_t> batch, const at::Tensor& features);

  const models::Model& model_;
  const ImageSource& images_;
  const PictureSupply supply_;
  at::Device device_;
  std::int64_t patch_budget_;
  models::OnLayer on_layer_;
  std::function<void(std::size_t, bool)> told_;
  std::unordered_map<std::uint64_t, at::Tensor> features_;  // by ImageSource::key_of
  PictureErrors errors_;
};

/// The grid that the source promises for a picture. kInvalidArgument for an index that is not
/// there.
Result<models::ImageGrid> grid_of(const ImageSource& images, std::size_t index);

}  // namespace evalcar::engine
