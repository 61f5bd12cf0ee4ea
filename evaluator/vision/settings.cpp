// The image processor's settings, from the files of both transformers generations.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "evaluator/vision/prepare.h"

namespace evalcar::vision {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;
constexpr std::int64_t kMostFolderPixels = std::int64_t{1} << 40;
constexpr int kBicubic = 3;  // PIL.Image.Resampling.BICUBIC
constexpr std::string_view kNested = "processor_config.json";
constexpr std::string_view kFlat = "preprocessor_config.json";

struct Source {
  Json settings;
  std::string place;  // for messages
};

// A value for a message: short, and never walking into a nest of unknown depth.
std::string shown(const Json& value) {
  return value.is_structured() ? "an " + std::string(value.type_name())
                               : value.dump(-1, ' ', true).substr(0, 80);
}

Error bad(const Source& source, std::string_view key, const std::string& expected) {
  const auto found = source.settings.find(key);
  const std::string seen = found == source.settings.end() ? "nothing" : shown(*found);
  return make_error(ErrorCode::kCorruption, source.place + ": " + std::string(key) + " is " + seen +
                                                ", expected " + expected);
}

Result<Json> read_object(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxFileBytes));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return make_error(ErrorCode::kCorruption, path + ": not a JSON object");
  return json;
}

// transformers' order: the nested settings if processor_config.json has them, else the flat file.
Result<Source> find_source(const FileSystem& files, const std::string& dir) {
  const std::string nested_path = join_path(dir, kNested);
  const std::string flat_path = join_path(dir, kFlat);
  auto nested = read_object(files, nested_path);
  if (nested) {
    const auto found = nested->find("image_processor");
    if (found != nested->end()) {
      if (!found->is_object()) {
        return make_error(ErrorCode::kCorruption,
                          nested_path + ": image_processor is not an object");
      }
      Json inner = std::move(*found);
      return Source{std::move(inner), nested_path + ": image_processor"};
    }
  } else if (nested.error().code != ErrorCode::kNotFound) {
    return std::move(nested).error();
  }
  auto flat = read_object(files, flat_path);
  if (flat) return Source{std::move(flat).value(), flat_path};
  if (flat.error().code != ErrorCode::kNotFound) return std::move(flat).error();
  return make_error(ErrorCode::kNotFound, dir + ": no image processor settings: neither " +
                                              std::string(kFlat) + " nor an image_processor in " +
                                              std::string(kNested) +
                                              "; copy them from the base model");
}

// nullptr for an absent key, which takes the default. A null is a value, and a wrong one:
// transformers switches the step off, or fails.
const Json* value_of(const Source& source, std::string_view key) {
  const auto found = source.settings.find(key);
  return found == source.settings.end() ? nullptr : &*found;
}

Status read_int(const Source& source, std::string_view key, int most, int& out) {
  const Json* value = value_of(source, key);
  if (value == nullptr) return {};
  if (!value->is_number_integer() || value->get<std::int64_t>() < 1 ||
      value->get<std::int64_t>() > most) {
    return bad(source, key, "a whole number from 1 to " + std::to_string(most));
  }
  out = static_cast<int>(value->get<std::int64_t>());
  return {};
}

Status read_channels(const Source& source, std::string_view key, bool zero_allowed,
                     std::array<double, 3>& out) {
  const Json* value = value_of(source, key);
  if (value == nullptr) return {};
  const std::string expected =
      std::string("a number or three, finite") + (zero_allowed ? "" : " and not 0");
  const auto read_one = [&](const Json& number, double& target) {
    if (!number.is_number()) return false;
    target = number.get<double>();
    return std::isfinite(target) && (zero_allowed || static_cast<float>(target) != 0.0F);
  };
  if (value->is_number()) {
    if (!read_one(*value, out[0])) return bad(source, key, expected);
    out[1] = out[2] = out[0];
    return {};
  }
  if (!value->is_array() || value->size() != out.size()) return bad(source, key, expected);
  for (std::size_t c = 0; c < out.size(); ++c) {
    if (!read_one((*value)[c], out[c])) return bad(source, key, expected);
  }
  return {};
}

Status check_class(const Source& source) {
  const Json* value = value_of(source, "image_processor_type");
  if (value == nullptr || value->is_null()) return {};  // transformers goes by the model's type
  if (value->is_string()) {
    // transformers takes a trailing "Fast" off; then both backends' names lead to torchvision's.
    std::string name = value->get<std::string>();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    if (name == "Qwen2VLImageProcessor" || name == "Qwen2VLImageProcessorPil") return {};
  }
  return make_error(ErrorCode::kUnsupported, source.place + ": image_processor_type is " +
                                                 shown(*value) +
                                                 ", expected Qwen2VLImageProcessor");
}

Status check_steps(const Source& source) {
  for (const std::string_view step : {"do_resize", "do_rescale", "do_normalize"}) {
    const Json* value = value_of(source, step);
    if (value == nullptr) continue;
    if (*value != true) {
      return make_error(ErrorCode::kUnsupported, source.place + ": " + std::string(step) + " is " +
                                                     shown(*value) +
                                                     "; only processors that resize, rescale and "
                                                     "normalise are known");
    }
  }
  const Json* size = value_of(source, "size");  // its limits are replaced by the caller's
  if (size != nullptr && !size->is_object() && !size->is_null())
    return bad(source, "size", "an object");
  const Json* resample = value_of(source, "resample");
  if (resample != nullptr && *resample != kBicubic) {
    return make_error(ErrorCode::kUnsupported, source.place + ": resample is " + shown(*resample) +
                                                   ", expected 3 (bicubic)");
  }
  return {};
}

// The folder's own: `size`, over which min_pixels and max_pixels beside it go, as transformers has
// it.
Result<PixelLimits> folder_limits(const Source& source) {
  PixelLimits limits{3136, 1003520};
  const auto read = [&](const Json& object, std::string_view key, std::int64_t& out) -> Status {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return {};
    if (!found->is_number_integer() || found->get<std::int64_t>() < 1 ||
        found->get<std::int64_t>() > kMostFolderPixels)
      return make_error(ErrorCode::kCorruption, source.place + ": " + std::string(key) + " is " +
                                                    shown(*found) +
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

Result<PixelLimits> limits_of(const Source& source, const PixelRule& rule) {
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
  EVALCAR_ASSIGN_OR_RETURN(const Source source, find_source(files, dir));
  EVALCAR_RETURN_IF_ERROR(check_class(source));
  EVALCAR_RETURN_IF_ERROR(check_steps(source));
  EVALCAR_ASSIGN_OR_RETURN(const PixelLimits limits, limits_of(source, rule));
  ProcessorSettings settings;
  EVALCAR_RETURN_IF_ERROR(read_int(source, "patch_size", 256, settings.patch_size));
  EVALCAR_RETURN_IF_ERROR(read_int(source, "merge_size", 16, settings.merge_size));
  EVALCAR_RETURN_IF_ERROR(
      read_int(source, "temporal_patch_size", 16, settings.temporal_patch_size));
  EVALCAR_RETURN_IF_ERROR(read_channels(source, "image_mean", true, settings.image_mean));
  EVALCAR_RETURN_IF_ERROR(read_channels(source, "image_std", false, settings.image_std));
  if (const Json* factor = value_of(source, "rescale_factor"); factor != nullptr) {
    if (!factor->is_number() || !(factor->get<double>() > 0) ||
        !std::isfinite(factor->get<double>()) || !std::isfinite(1.0 / factor->get<double>())) {
      return bad(source, "rescale_factor", "a positive number");
    }
    settings.rescale_factor = factor->get<double>();
  }
  settings.sizing = rule.sizing;
  settings.min_pixels = limits.min_pixels;
  settings.max_pixels = limits.max_pixels;
  return settings;
}

}  // namespace evalcar::vision
