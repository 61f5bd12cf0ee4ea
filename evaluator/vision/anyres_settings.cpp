#include "evaluator/vision/anyres_settings.h"

#include <utility>

#include "evaluator/vision/processor_files.h"

namespace evalcar::vision {
namespace {

using Json = nlohmann::json;

constexpr int kMostTile = 4096;
constexpr int kMostTokens = 1 << 20;

// A step or a size that transformers leaves out where the value is false or null.
Status check_absent(const ProcessorSource& source, std::string_view key) {
  const Json* value = value_of(source, key);
  if (value == nullptr || value->is_null() || *value == false) return {};
  return make_error(ErrorCode::kUnsupported, source.place + ": " + std::string(key) + " is " +
                                                 shown_value(*value) +
                                                 "; pictures that are cropped are not known");
}

// Without padding several pictures of one prompt do not become a batch in transformers.
Status check_padding(const ProcessorSource& source) {
  const Json* value = value_of(source, "do_pad");
  if (value == nullptr || *value == true) return {};
  return make_error(ErrorCode::kUnsupported,
                    source.place + ": do_pad is " + shown_value(*value) + ", expected true");
}

Status read_tile(const ProcessorSource& source, int& tile) {
  const Json* size = value_of(source, "size");
  if (size == nullptr) return {};
  const auto side = [&](std::string_view key) -> std::int64_t {
    const auto found = size->find(key);
    return found != size->end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  if (!size->is_object() || side("height") < 1 || side("height") > kMostTile ||
      side("height") != side("width"))
    return bad_value(source, "size",
                     "an object with height and width, equal, from 1 to " +
                         std::to_string(kMostTile) + " pixels");
  tile = static_cast<int>(side("height"));
  return {};
}

// What the processor counts placeholders by, beside its image processor's settings.
Status read_counting(const FileSystem& files, const std::string& dir, int side, Anyres& anyres) {
  EVALCAR_ASSIGN_OR_RETURN(const auto outer, find_outer_settings(files, dir));
  int tokens = 0;
  if (outer) EVALCAR_RETURN_IF_ERROR(read_int(*outer, "num_image_tokens", kMostTokens, tokens));
  if (tokens == 0)
    return make_error(ErrorCode::kCorruption,
                      join_path(dir, "processor_config.json") +
                          ": no num_image_tokens, by which the processor counts a picture's "
                          "tokens; copy the file from the base model");
  if (tokens != side * side)
    return make_error(ErrorCode::kCorruption,
                      outer->place + ": num_image_tokens is " + std::to_string(tokens) +
                          ", and the model's tower makes " + std::to_string(side) + "x" +
                          std::to_string(side) + " features of a square");
  anyres.side = side;
  const Json* strategy = value_of(*outer, "vision_feature_select_strategy");
  if (strategy != nullptr && !strategy->is_null() && *strategy != "full")
    return make_error(ErrorCode::kUnsupported, outer->place +
                                                   ": vision_feature_select_strategy is " +
                                                   shown_value(*strategy) + ", expected \"full\"");
  if (const Json* ratio = value_of(*outer, "vision_aspect_ratio"); ratio != nullptr) {
    if (!ratio->is_string()) return bad_value(*outer, "vision_aspect_ratio", "a text");
    EVALCAR_ASSIGN_OR_RETURN(anyres.most_tiles,
                             read_most_tiles(ratio->get_ref<const std::string&>(),
                                             outer->place + ": vision_aspect_ratio"));
  }
  return {};
}

}  // namespace

Result<ProcessorSettings> load_anyres_settings(const FileSystem& files, const std::string& dir,
                                               const PixelRule& rule) {
  if (rule.min_pixels || rule.max_pixels)
    return make_error(ErrorCode::kInvalidArgument,
                      "evaluate.min_pixels and evaluate.max_pixels have no effect on this model, "
                      "whose pictures are cut into squares of one size; leave them out");
  EVALCAR_ASSIGN_OR_RETURN(const ProcessorSource source, find_processor(files, dir));
  EVALCAR_RETURN_IF_ERROR(check_processor_class(source, "LlavaOnevisionImageProcessor"));
  EVALCAR_RETURN_IF_ERROR(check_usual_steps(source));
  EVALCAR_RETURN_IF_ERROR(check_absent(source, "do_center_crop"));
  EVALCAR_RETURN_IF_ERROR(check_absent(source, "crop_size"));
  EVALCAR_RETURN_IF_ERROR(check_padding(source));
  ProcessorSettings settings{
      .patch_size = rule.patch_size, .merge_size = 1, .temporal_patch_size = 1};
  settings.sizing = Sizing::kAnyres;
  settings.min_pixels = settings.max_pixels = 0;
  EVALCAR_RETURN_IF_ERROR(read_normalisation(source, settings));
  Anyres anyres;
  EVALCAR_RETURN_IF_ERROR(read_tile(source, anyres.tile));
  anyres.resolutions = usual_resolutions();
  if (const Json* list = value_of(source, "image_grid_pinpoints"); list != nullptr) {
    EVALCAR_ASSIGN_OR_RETURN(
        anyres.resolutions,
        read_resolutions(*list, anyres.tile, source.place + ": image_grid_pinpoints"));
  } else if (anyres.tile != 384) {
    return bad_value(source, "image_grid_pinpoints",
                     "a list, for the usual one is of squares of 384 pixels");
  }
  EVALCAR_RETURN_IF_ERROR(read_counting(files, dir, anyres.tile / rule.patch_size, anyres));
  settings.anyres = std::move(anyres);
  return settings;
}

}  // namespace evalcar::vision
