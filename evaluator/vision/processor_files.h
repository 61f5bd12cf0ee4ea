// An image processor's files in a checkpoint folder: processor_config.json (transformers 5.x),
// preprocessor_config.json (4.x), and what all processors have in them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "evaluator/vision/prepare.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::vision {

struct ProcessorSource {
  nlohmann::json settings;  ///< an object
  std::string place;        ///< for messages
};

/// transformers' order: the nested settings if processor_config.json has them, else the flat file.
/// kNotFound naming both; kCorruption for what is not a JSON object. At most 1 MiB is read.
Result<ProcessorSource> find_processor(const FileSystem& files, const std::string& dir);
/// processor_config.json itself: the processor's own settings, around those of its parts.
Result<std::optional<ProcessorSource>> find_outer_settings(const FileSystem& files,
                                                           const std::string& dir);

/// nullptr for an absent key, which takes the default. A null is a value, and a wrong one:
/// transformers switches the step off, or fails.
const nlohmann::json* value_of(const ProcessorSource& source, std::string_view key);
/// A value for a message: short, and never walking into a nest of unknown depth.
std::string shown_value(const nlohmann::json& value);
/// kCorruption "<place>: <key> is <seen>, expected <expected>".
Error bad_value(const ProcessorSource& source, std::string_view key, const std::string& expected);

/// A whole number from 1 to `most`; absent leaves `out` as it is.
Status read_int(const ProcessorSource& source, std::string_view key, int most, int& out);
/// image_mean, image_std and rescale_factor.
Status read_normalisation(const ProcessorSource& source, ProcessorSettings& settings);
/// kUnsupported unless image_processor_type is `expected`, …Fast or …Pil, or not there.
Status check_processor_class(const ProcessorSource& source, std::string_view expected);
/// kUnsupported unless it resizes (bicubic), rescales and normalises.
Status check_usual_steps(const ProcessorSource& source);

}  // namespace evalcar::vision
