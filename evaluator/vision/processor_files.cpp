#include "evaluator/vision/processor_files.h"

#include <cmath>

namespace evalcar::vision {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr int kBicubic = 3;  // PIL.Image.Resampling.BICUBIC
constexpr std::string_view kNested = "processor_config.json";
constexpr std::string_view kFlat = "preprocessor_config.json";

Result<Json> read_object(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxFileBytes));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return make_error(ErrorCode::kCorruption, path + ": not a JSON object");
  return json;
}

Status read_channels(const ProcessorSource& source, std::string_view key, bool zero_allowed,
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
    if (!read_one(*value, out[0])) return bad_value(source, key, expected);
    out[1] = out[2] = out[0];
    return {};
  }
  if (!value->is_array() || value->size() != out.size()) return bad_value(source, key, expected);
  for (std::size_t c = 0; c < out.size(); ++c) {
    if (!read_one((*value)[c], out[c])) return bad_value(source, key, expected);
  }
  return {};
}

}  // namespace

// A value for a message: short, and never walking into a nest of unknown depth.
std::string shown_value(const Json& value) {
  return value.is_structured() ? "an " + std::string(value.type_name())
                               : value.dump(-1, ' ', true).substr(0, 80);
}

Error bad_value(const ProcessorSource& source, std::string_view key, const std::string& expected) {
  const auto found = source.settings.find(key);
  const std::string seen = found == source.settings.end() ? "nothing" : shown_value(*found);
  return make_error(ErrorCode::kCorruption, source.place + ": " + std::string(key) + " is " + seen +
                                                ", expected " + expected);
}

// transformers' order: the nested settings if processor_config.json has them, else the flat file.
Result<ProcessorSource> find_processor(const FileSystem& files, const std::string& dir) {
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
      return ProcessorSource{std::move(inner), nested_path + ": image_processor"};
    }
  } else if (nested.error().code != ErrorCode::kNotFound) {
    return std::move(nested).error();
  }
  auto flat = read_object(files, flat_path);
  if (flat) return ProcessorSource{std::move(flat).value(), flat_path};
  if (flat.error().code != ErrorCode::kNotFound) return std::move(flat).error();
  return make_error(ErrorCode::kNotFound, dir + ": no image processor settings: neither " +
                                              std::string(kFlat) + " nor an image_processor in " +
                                              std::string(kNested) +
                                              "; copy them from the base model");
}

const Json* value_of(const ProcessorSource& source, std::string_view key) {
  const auto found = source.settings.find(key);
  return found == source.settings.end() ? nullptr : &*found;
}

Status read_int(const ProcessorSource& source, std::string_view key, int most, int& out) {
  const Json* value = value_of(source, key);
  if (value == nullptr) return {};
  if (!value->is_number_integer() || value->get<std::int64_t>() < 1 ||
      value->get<std::int64_t>() > most) {
    return bad_value(source, key, "a whole number from 1 to " + std::to_string(most));
  }
  out = static_cast<int>(value->get<std::int64_t>());
  return {};
}

Result<std::optional<ProcessorSource>> find_outer_settings(const FileSystem& files,
                                                           const std::string& dir) {
  const std::string path = join_path(dir, kNested);
  auto object = read_object(files, path);
  if (object) return std::optional(ProcessorSource{std::move(object).value(), path});
  if (object.error().code != ErrorCode::kNotFound) return std::move(object).error();
  return std::optional<ProcessorSource>();
}

Status check_processor_class(const ProcessorSource& source, std::string_view expected) {
  const Json* value = value_of(source, "image_processor_type");
  if (value == nullptr || value->is_null()) return {};  // transformers goes by the model's type
  if (value->is_string()) {
    // transformers takes a trailing "Fast" off; then both backends' names lead to torchvision's.
    std::string name = value->get<std::string>();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    if (name == expected || name == std::string(expected) + "Pil") return {};
  }
  return make_error(ErrorCode::kUnsupported, source.place + ": image_processor_type is " +
                                                 shown_value(*value) + ", expected " +
                                                 std::string(expected));
}

Status check_usual_steps(const ProcessorSource& source) {
  for (const std::string_view step : {"do_resize", "do_rescale", "do_normalize"}) {
    const Json* value = value_of(source, step);
    if (value == nullptr) continue;
    if (*value != true) {
      return make_error(ErrorCode::kUnsupported, source.place + ": " + std::string(step) + " is " +
                                                     shown_value(*value) +
                                                     "; only processors that resize, rescale and "
                                                     "normalise are known");
    }
  }
  const Json* resample = value_of(source, "resample");
  if (resample != nullptr && *resample != kBicubic) {
    return make_error(
        ErrorCode::kUnsupported,
        source.place + ": resample is " + shown_value(*resample) + ", expected 3 (bicubic)");
  }
  return {};
}

Status read_normalisation(const ProcessorSource& source, ProcessorSettings& settings) {
  EVALCAR_RETURN_IF_ERROR(read_channels(source, "image_mean", true, settings.image_mean));
  EVALCAR_RETURN_IF_ERROR(read_channels(source, "image_std", false, settings.image_std));
  if (const Json* factor = value_of(source, "rescale_factor"); factor != nullptr) {
    if (!factor->is_number() || !(factor->get<double>() > 0) ||
        !std::isfinite(factor->get<double>()) || !std::isfinite(1.0 / factor->get<double>())) {
      return bad_value(source, "rescale_factor", "a positive number");
    }
    settings.rescale_factor = factor->get<double>();
  }
  return {};
}

}  // namespace evalcar::vision
