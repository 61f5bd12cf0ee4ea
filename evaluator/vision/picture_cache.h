// Prepared pictures on the disk, shared by all checkpoints and all evaluators of a machine: from
// the second checkpoint on a page costs a read, not a decode and two resizes.
//
// Content-addressed: an entry's name is the SHA-256 of all that its pixels follow from, so that
// nothing in it can be stale. An entry is published by rename and carries checksums; there is no
// index and no fsync: what a crash leaves is whole, or is seen to be damaged and made anew.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "evaluator/vision/picture_entry.h"
#include "evaluator/vision/prepare.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/guarded.h"
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
/// is not, and the first such failure of a kind is a warning on stderr.
///
/// A full cache gives up what nobody asked for in a day, and else keeps what it has: where more
/// pictures are evaluated than fit, giving up the oldest would lose each just before its next use.
/// Where the disk runs full, the oldest go.
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
  struct State {
    std::optional<std::uint64_t> used;   ///< bytes of the entries; not counted yet
    std::uint64_t since_count = 0;       ///< kept here since; others keep, too
    std::optional<MonotonicTime> until;  ///< nothing is kept before, because there was no room
    bool told_damage = false;
    bool told_failure = false;
  };

  PictureKey key_of(const Sha256Digest& picture, const ProcessorSettings& settings) const;
  std::string path_of(const PictureKey& key) const;
  bool make_room(std::uint64_t bytes);
  bool make_room(State& state, std::uint64_t bytes);
  Status write(const PictureKey& key, const PreparedImage& image);
  void give_back(std::uint64_t bytes, const Error& why);

  FileSystem& files_;
  const Clock& clock_;
  const PictureCacheOptions options_;
  Guarded<State> state_;
};

}  // namespace evalcar::vision
