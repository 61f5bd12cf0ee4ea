// The pictures of samples as people see them on the page: one small file for each distinct picture,
// which all checkpoints, runs and evaluators of a machine share (store/protocol/picture_name.h).
#pragma once

#include <cstdint>
#include <string>

#include "evaluator/vision/file_shelf.h"
#include "evaluator/vision/image.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/hash.h"

namespace evalcar::vision {

struct SamplePicturesOptions {
  std::string folder;           ///< is made when it is needed
  std::uint64_t bytes = 0;      ///< of all files together, each in blocks of 4 KiB
  std::uint64_t keep_free = 0;  ///< of the disk, for the others who write there
};

/// Thread-safe, and safe beside other processes with the same folder. Nothing that goes wrong here
/// is an error of the evaluation: a picture that cannot be written is not shown (FileShelf).
class SamplePictures {
 public:
  /// `files` and `clock` must outlive it.
  SamplePictures(FileSystem& files, const Clock& clock, SamplePicturesOptions options);

  /// No whole file is there of the picture whose encoded bytes have this SHA-256, and one may be
  /// written. Of one that is there it says that it was asked for.
  bool wants(const Sha256Digest& picture);
  /// Writes its file, if it wants it. `image`: the picture, decoded.
  void keep(const Sha256Digest& picture, const Image& image);

 private:
  bool is_there(const std::string& path);

  FileSystem& files_;
  FileShelf shelf_;
};

}  // namespace evalcar::vision
