// The markers before a JPEG's first scan, walked as Pillow's JpegImagePlugin walks them. Internal.
#pragma once

#include "evaluator/vision/metadata.h"

namespace evalcar::vision {

struct JpegHeader {
  int width = 0;
  int height = 0;
  int components = 0;    ///< 1 grey, 3 colour, 4 CMYK or YCCK
  std::size_t scan = 0;  ///< where the first scan's data begins
  Metadata metadata;
};

/// kCorruption where Pillow cannot identify the file, kUnsupported for what it cannot handle
/// (12-bit samples, 2 components).
Result<JpegHeader> read_jpeg_header(Bytes bytes, std::string_view name);

}  // namespace evalcar::vision
