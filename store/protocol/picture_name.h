// The small pictures of samples that people look at: the evaluator writes them into one folder, the
// agent serves them from there, and both know them by name alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "store/base/hash.h"

namespace evalcar::protocol {

/// Longest side of such a picture, in pixels.
inline constexpr int kSamplePictureSide = 512;
/// Of one sample; a document with more is shown with its first ones.
inline constexpr std::size_t kMostSamplePictures = 16;
/// Bytes of one: an uncompressed one has less.
inline constexpr std::size_t kMostSamplePictureBytes = std::size_t{1} << 20U;

/// "<SHA-256 of the picture's bytes as the data set has them, in lower-case hexadecimal>.jpg".
std::string sample_picture_name(const Sha256Digest& source);
/// Exactly such a name, so that it can be part of a path.
bool is_sample_picture_name(std::string_view name);
/// Where it lies: a folder of the first two letters in `folder`.
std::string sample_picture_path(const std::string& folder, std::string_view name);
/// `bytes` begin and end as a JPEG does: what a crash tore does not.
bool is_whole_sample_picture(std::string_view bytes);

}  // namespace evalcar::protocol
