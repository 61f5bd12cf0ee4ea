// The settings of Qwen's image processor, from the files of both transformers generations.
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "evaluator/vision/anyres_settings.h"
#include "evaluator/vision/prepare.h"
#include "evaluator/vision/processor_files.h"

namespace evalcar::vision {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;
constexpr std::int64_t kMostFolderPixels = std::int64_t{1} << 40;

Status check_steps(const ProcessorSource& source) {
  const Json* size = value_of(source, "size");  // its limits are replaced by the caller's
  if (size != nullptr && !size->is_object() && !size->is_null())
    return bad_value(source, "size", "an object");
  return check_usual_steps(source);
}

// The folder's own: `size`, over which min_pixels and max_pixels beside it go, as transformers has
// it.
Result<PixelLimits> folder_limits(const ProcessorSource& source) {
  PixelLimits limits{3136, 1003520};
  const auto read = [&](const Json& object, std::string_view key, std::int64_t& out) -> Status {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return {};
    if (!found->is_number_integer() || found->get<std::int64_t>() < 1 ||
        found->get<std::int64_t>() > kMostFolderPixels)
      return make_error(ErrorCode::kCorruption, source.place + ": " + std::string(key) + " is " +
                                                    shown_value(*found) +
                                                    ", expected a whole number from 1 to " +
                                                    std::to_string(kMostFolderPixels));
    out = found->get<std::int64_t>();
    return {};
  };
  if (const Json* size = value_of(source, "size"); size != nullptr && size->is_object()) {
    EVALCAR_RETURN_IF_ERROR(read(*size, "shortest_edge", limits.min_pixels));
    EVALCAR_RETURN_IF_ERROR(read(*size, "longest_edge", limits.max_pixels));
  }
  EVALCAR_RETURN_IF_ERROR(read(source.settings, "min_pixels", limits.min_pixels));
  EVALCAR_RETURN_IF_ERROR(read(source.settings, "max_pixels", limits.max_pixels));
  return limits;
}

Result<PixelLimits> limits_of(const ProcessorSource& source, const PixelRule& rule) {
  PixelLimits limits = utils_limits();
  if (rule.sizing == Sizing::kProcessor) {
    EVALCAR_ASSIGN_OR_RETURN(limits, folder_limits(source));
  }
  if (rule.min_pixels) limits.min_pixels = *rule.min_pixels;
  if (rule.max_pixels) limits.max_pixels = *rule.max_pixels;
  const bool own = rule.min_pixels || rule.max_pixels;
  if (limits.min_pixels < 1 || limits.max_pixels < limits.min_pixels ||
      (own && limits.max_pixels > kMaxPixels)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "min_pixels " + std::to_string(limits.min_pixels) + ", max_pixels " +
            std::to_string(limits.max_pixels) +
            ": expected 1 <= min_pixels <= max_pixels <= " + std::to_string(kMaxPixels));
  }
  return limits;
}

}  // namespace

Result<ProcessorSettings> load_processor_settings(const FileSystem& files, const std::string& dir,
                                                  const PixelRule& rule) {
  if (rule.sizing == Sizing::kAnyres) return load_anyres_settings(files, dir, rule);
  EVALCAR_ASSIGN_OR_RETURN(const ProcessorSource source, find_processor(files, dir));
  EVALCAR_RETURN_IF_ERROR(check_processor_class(source, "Qwen2VLImageProcessor"));
  EVALCAR_RETURN_IF_ERROR(check_steps(source));
  EVALCAR_ASSIGN_OR_RETURN(const PixelLimits limits, limits_of(source, rule));
  ProcessorSettings settings;
  EVALCAR_RETURN_IF_ERROR(read_int(source, "patch_size", 256, settings.patch_size));
  EVALCAR_RETURN_IF_ERROR(read_int(source, "merge_size", 16, settings.merge_size));
  EVALCAR_RETURN_IF_ERROR(
      read_int(source, "temporal_patch_size", 16, settings.temporal_patch_size));
  EVALCAR_RETURN_IF_ERROR(read_normalisation(source, settings));
  settings.sizing = rule.sizing;
  settings.min_pixels = limits.min_pixels;
  settings.max_pixels = limits.max_pixels;
  return settings;
}

std::string settings_text(const ProcessorSettings& settings) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  text << settings.patch_size << ' ' << settings.merge_size << ' ' << settings.temporal_patch_size
       << ' ' << static_cast<int>(settings.sizing) << ' ' << settings.min_pixels << ' '
       << settings.max_pixels << ' ' << settings.slow_processor << ' ' << settings.rescale_factor;
  for (const auto& channels : {settings.image_mean, settings.image_std}) {
    for (const double value : channels) text << ' ' << value;
  }
  if (settings.anyres) {
    text << " squares " << settings.anyres->tile << ' ' << settings.anyres->side << ' '
         << settings.anyres->most_tiles;
    for (const ImageSize& size : settings.anyres->resolutions)
      text << ' ' << size.height << 'x' << size.width;
  }
  return std::move(text).str();
}

}  // namespace evalcar::vision
