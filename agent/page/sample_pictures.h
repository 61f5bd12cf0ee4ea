// The small pictures of samples that the evaluator left in the state directory: they are only
// handed on.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::page {

/// Thread-safe, as the file system is.
class SamplePictures {
 public:
  /// `files` must outlive it.
  SamplePictures(const FileSystem& files, std::string folder)
      : files_(files), folder_(std::move(folder)) {}

  /// A file of this name is there; false for what is no such name.
  bool has(std::string_view name) const;
  /// A whole JPEG. kNotFound: no such name (protocol::is_sample_picture_name), no file, or one that
  /// is not whole; nothing but a regular file of bounded size is read.
  Result<std::string> read(std::string_view name) const;

 private:
  const FileSystem& files_;
  std::string folder_;
};

}  // namespace evalcar::page
