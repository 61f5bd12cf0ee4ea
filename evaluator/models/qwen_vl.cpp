#include "evaluator/models/qwen_vl.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace evalcar::models::qwen_vl {
namespace {

constexpr std::int64_t kUsualImageToken = 151655;

std::vector<std::int64_t> in_blocks(const std::vector<std::int64_t>& section) {
  std::vector<std::int64_t> axis;
  for (std::size_t i = 0; i < section.size(); ++i)
    axis.insert(axis.end(), static_cast<std::size_t>(section[i]), static_cast<std::int64_t>(i));
  return axis;
}

// t h w t h w …: height has frequencies 1, 4, 7, …, width 2, 5, 8, …, as many as their sections.
std::vector<std::int64_t> in_turn(const std::vector<std::int64_t>& section, std::int64_t size) {
  std::vector<std::int64_t> axis(static_cast<std::size_t>(size), 0);
  for (std::int64_t which = 1; which < 3; ++which) {
    const std::int64_t end = std::min(size, 3 * section[static_cast<std::size_t>(which)]);
    for (std::int64_t i = which; i < end; i += 3) axis[static_cast<std::size_t>(i)] = which;
  }
  return axis;
}

}  // namespace

std::string canonical_name(std::string_view stored) {
  constexpr std::string_view kText = "model.language_model.";
  constexpr std::string_view kVision = "model.visual.";
  if (stored.starts_with(kText)) return "model." + std::string(stored.substr(kText.size()));
  if (stored.starts_with(kVision)) return "visual." + std::string(stored.substr(kVision.size()));
  return std::string(stored);
}

Status read_sections(const ConfigFields& fields, Sections sections,
                     std::vector<std::int64_t> section, decoder::Config& text) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rope, rotary_object(fields));
  if (rope) {
    EVALCAR_ASSIGN_OR_RETURN(section, rope->integers("mrope_section", 0, kMostWidth, 3, section));
  }
  const std::int64_t half = text.head_dim / 2;
  if (section.size() != 3 || section[0] + section[1] + section[2] != half)
    return make_error(ErrorCode::kCorruption,
                      fields.place() +
                          ": mrope_section must be three numbers whose sum is half "
                          "the head dimension of " +
                          std::to_string(text.head_dim));
  text.position_axis = sections == Sections::kBlocks ? in_blocks(section) : in_turn(section, half);
  return {};
}

Result<ConfigFields> text_fields(const ConfigFields& root) {
  EVALCAR_ASSIGN_OR_RETURN(const auto nested, root.object("text_config"));
  return nested ? *nested : root;
}

Result<ConfigFields> vision_fields(const ConfigFields& root) {
  EVALCAR_ASSIGN_OR_RETURN(const auto vision, root.object("vision_config"));
  if (!vision) return root.unexpected("vision_config", "expected an object");
  return *vision;
}

Result<decoder::Config> read_qwen2_text(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(
      decoder::Config text,
      decoder::read_config(
          fields, {.kv_heads = 8, .rms_norm_eps = 1e-5, .rope_theta = 1e6, .plain_rope = "mrope"}));
  text.qkv_bias = true;
  EVALCAR_RETURN_IF_ERROR(decoder::read_layer_windows(fields, /*first_windowed=*/80, text));
  EVALCAR_RETURN_IF_ERROR(read_sections(fields, Sections::kBlocks, {16, 24, 24}, text));
  return text;
}

// transformers ties if either place says so (before 5.x the key was in text_config).
Result<bool> read_tie(const ConfigFields& root, const decoder::Config& text) {
  EVALCAR_ASSIGN_OR_RETURN(const bool outer, root.boolean("tie_word_embeddings", false));
  return text.tied_head || outer;
}

Result<int> read_image_token_id(const ConfigFields& root, const decoder::Config& text) {
  const auto usual = text.vocab > kUsualImageToken ? std::optional<std::int64_t>(kUsualImageToken)
                                                   : std::optional<std::int64_t>();
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t id,
                           root.integer("image_token_id", 0, text.vocab - 1, usual));
  return static_cast<int>(id);
}

}  // namespace evalcar::models::qwen_vl
