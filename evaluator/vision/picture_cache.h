// Prepared pictures on the disk, shared by all checkpoints and all evaluators of a machine: from
// the second checkpoint on a page costs a read, not a decode and two resizes.
//
// Content-addressed: an entry's name is the SHA-256 of all that its pixels follow from, so that
// nothing in it can be stale. An entry is published by rename and carries checksums; there is no
// index and no fsync: what a crash leaves is whole, or is seen to be damaged and made anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "evaluator/vision/file_shelf.h"
#include "evaluator/vision/picture_entry.h"
#include "evaluator/vision/prepare.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/hash.h"

namespace evalcar::vision {

struct PictureCacheOptions {
  std::string folder;           ///< is made when it is needed
  std::uint64_t bytes = 0;      ///< of all entries together, about
  std::uint64_t keep_free = 0;  ///< of the disk, for the others who write there
  std::string made_by;          ///< pixel_makers(): another program's pixels are others
};

/// Thread-safe, and safe beside other processes with the same folder. Nothing that goes wrong here
/// is an error of the evaluation: a picture that cannot be found is made, one that cannot be kept
/// is not (FileShelf), and the first such failure of a kind is a warning on stderr.
class PictureCache {
 public:
  /// `files` and `clock` must outlive it.
  PictureCache(FileSystem& files, const Clock& clock, PictureCacheOptions options);

  /// The picture whose encoded bytes have this SHA-256, prepared with these settings.
  std::optional<PreparedImage> find(const Sha256Digest& picture, const ProcessorSettings& settings);
  /// Keeps it for the next time.
  void keep(const Sha256Digest& picture, const ProcessorSettings& settings,
            const PreparedImage& image);

 private:
  PictureKey key_of(const Sha256Digest& picture, const ProcessorSettings& settings) const;

  FileSystem& files_;
  FileShelf shelf_;
  const std::string made_by_;
  std::atomic<bool> told_damage_ = false;
};

}  // namespace evalcar::vision
