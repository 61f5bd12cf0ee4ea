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
#include "evaluator/engine/picture_pages.h"
#include "evaluator/engine/picture_plan.h"
#include "evaluator/engine/picture_queue.h"
#include "evaluator/models/model.h"

namespace evalcar::engine {

/// Why pictures cannot be read, by ImageSource::key_of.
using PictureErrors = std::unordered_map<std::uint64_t, Error>;

/// Where a run's pictures come from. What it refers to outlives the run.
struct PictureSupply {
  const PicturePlan& plan;
  PictureQueue& queue;
  EncodedPictures& encoded;       ///< what earlier runs left
  const Sha256Digest encoder;     ///< of batch_key()
  PicturePages* pages = nullptr;  ///< that the queue's pictures lie in; null: in the heap
};

/// Keeps the embeddings of the pictures of the current pack, and what is wrong with others of it.
/// Not thread-safe.
class ImageEncoder {
 public:
  /// The references must outlive the object. `on_layer` is called after each picture, too.
  /// `told`: RunEvents::encoded.
  ImageEncoder(const models::Model& model, const ImageSource& images, const PictureSupply& supply,
               at::Device device, models::OnLayer on_layer,
               std::function<void(std::size_t, bool)> told);

  /// Encodes the pictures of a pack that are not there yet, each in the batch that the plan has it
  /// in, and forgets all others. Packs are asked for in their order, which may leave some out.
  /// Returns what is wrong with those that cannot be read. kCancelled when stopped. May throw
  /// c10::Error.
  Result<PictureErrors> prepare(std::size_t pack, std::span<const std::size_t> indices,
                                const std::stop_token& stop);
  /// ImageSource::key_of
  std::uint64_t key_of(std::size_t index) const { return images_.key_of(index); }
  /// (tokens, hidden) of a picture that was prepared.
  const at::Tensor& features(std::size_t index) const;

 private:
  struct Held {
    std::size_t batch = 0;  ///< of the plan
    Result<at::Tensor> features;
  };
  /// Batches of the plan, by ImageSource::key_of.
  using Shown = std::unordered_map<std::uint64_t, std::size_t>;

  Status ready(std::size_t pack, std::size_t number, const Shown& shown,
               const std::stop_token& stop);
  at::Tensor encode(std::span<const std::size_t> batch, std::vector<PatchRows> patches) const;
  at::Tensor on_device(std::vector<PatchRows> patches) const;
  void split(std::size_t number, std::span<const std::size_t> batch, const Shown& shown,
             const at::Tensor& features);

  const models::Model& model_;
  const ImageSource& images_;
  const PictureSupply supply_;
  at::Device device_;
  models::OnLayer on_layer_;
  std::function<void(std::size_t, bool)> told_;
  std::unordered_map<std::uint64_t, Held> held_;  // by ImageSource::key_of
};

/// The grid that the source promises for a picture. kInvalidArgument for an index that is not
/// there.
Result<models::ImageGrid> grid_of(const ImageSource& images, std::size_t index);

}  // namespace evalcar::engine
