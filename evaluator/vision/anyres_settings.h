// The settings of LlavaOnevisionProcessor and its image processor.
#pragma once

#include <string>

#include "evaluator/vision/prepare.h"

namespace evalcar::vision {

/// load_processor_settings() of Sizing::kAnyres.
Result<ProcessorSettings> load_anyres_settings(const FileSystem& files, const std::string& dir,
                                               const PixelRule& rule);

}  // namespace evalcar::vision
