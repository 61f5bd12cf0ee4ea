// A small copy of a picture, for people to look at.
#pragma once

#include <cstddef>
#include <vector>

#include "evaluator/vision/image.h"
#include "store/base/result.h"

namespace evalcar::vision {

/// The size of a copy whose sides are at most `side` pixels, with the proportions kept as well as
/// whole pixels allow, and never larger than the picture: what Pillow's Image.thumbnail takes.
ImageSize small_size(int width, int height, int side);

/// The picture in small_size(), resized by Pillow's bicubic, as a JPEG (quality 85, colours not
/// subsampled: fine coloured lines stay readable). kInvalidArgument for an empty picture.
/// Thread-safe.
Result<std::vector<std::byte>> small_jpeg(const Image& image, int side);

}  // namespace evalcar::vision
