// Which pictures of a run go through the vision tower together, planned over all packs before the
// first is computed. Without libtorch.
//
// A pack encodes what it shows and the pack before it did not. Where a run goes on after an
// interruption, that one may be passed over; then the picture is encoded in the batch that it was
// in there, since what stands beside it changes its last bits (picture_batches.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/picture_batches.h"
#include "evaluator/engine/picture_queue.h"
#include "evaluator/engine/planner.h"
#include "store/base/hash.h"

namespace evalcar::engine {

/// Immutable.
class PicturePlan {
 public:
  /// A pack's pictures go by index (the order in which a source reads its files), equal ones once,
  /// in batches of at most `most_patches`. Groups name requests by their place in `requests`.
  PicturePlan(std::span<const Pack> packs, std::span<const Request> requests,
              const ImageSource& images, std::int64_t most_patches);

  /// In the order in which the packs come to need them.
  std::span<const PictureBatch> batches() const { return batches_; }
  /// The batch that `pack` has its picture of this key from: its own, or that of a pack before it.
  std::size_t batch_of(std::size_t pack, std::uint64_t key) const {
    return batch_of_[pack].at(key);
  }

  /// What has to be prepared, in the order in which it is asked for: of the packs that
  /// `is_computed`, pack by pack, the batches whose key (batch_key()) is not there. `is_there` is
  /// asked once for each batch of the plan that has a key.
  std::vector<PicturePlace> pictures_to_make(
      const std::function<bool(std::size_t pack)>& is_computed, const ImageSource& images,
      const Sha256Digest& encoder, const std::function<bool(const Sha256Digest&)>& is_there) const;

 private:
  std::vector<PictureBatch> batches_;
  std::vector<std::map<std::uint64_t, std::size_t>> batch_of_;  // of each pack, by key
};

}  // namespace evalcar::engine
