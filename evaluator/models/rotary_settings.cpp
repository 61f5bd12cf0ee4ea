#include "evaluator/models/rotary_settings.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace evalcar::models {
namespace {

constexpr double kMostTheta = 1e12;
constexpr double kMostFactor = 1e6;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 32;

// transformers gives a number beside the object precedence over one inside, and takes
// max_position_embeddings where there is neither.
Result<std::int64_t> original_positions(const ConfigFields& fields, const ConfigFields& rope) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (fields.has(kKey)) return fields.integer(kKey, 1, kMostPositions);
  if (rope.has(kKey)) return rope.integer(kKey, 1, kMostPositions);
  return fields.integer("max_position_embeddings", 1, kMostPositions);
}

Status read_llama3(const ConfigFields& fields, const ConfigFields& rope, RotarySettings& out) {
  EVALCAR_ASSIGN_OR_RETURN(out.low_frequency, rope.number("low_freq_factor", 1e-6, kMostFactor));
  EVALCAR_ASSIGN_OR_RETURN(out.high_frequency, rope.number("high_freq_factor", 1e-6, kMostFactor));
  if (out.high_frequency <= out.low_frequency)
    return rope.unexpected("high_freq_factor", "expected more than low_freq_factor");
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t positions, original_positions(fields, rope));
  out.original_positions = static_cast<double>(positions);
  return {};
}

Status refuse_partial(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(const double part, fields.number("partial_rotary_factor", 0, 1, 1.0));
  if (part != 1.0)
    return fields.unsupported("partial_rotary_factor " + std::to_string(part) + " (known: 1)");
  return {};
}

}  // namespace

Result<std::optional<ConfigFields>> rotary_object(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(const auto scaling, fields.object("rope_scaling"));
  if (scaling && !scaling->json().empty()) return scaling;
  return fields.object("rope_parameters");
}

Result<RotarySettings> read_rotary(const ConfigFields& fields, double default_theta,
                                   std::string_view plain) {
  RotarySettings out;
  EVALCAR_ASSIGN_OR_RETURN(const auto found, rotary_object(fields));
  const ConfigFields& rope = found ? *found : fields;
  EVALCAR_ASSIGN_OR_RETURN(out.theta, (rope.has("rope_theta") ? rope : fields)
                                          .number("rope_theta", 1.0, kMostTheta, default_theta));
  EVALCAR_RETURN_IF_ERROR(refuse_partial(fields));
  if (!found) return out;
  EVALCAR_RETURN_IF_ERROR(refuse_partial(rope));
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    if (rope.has(kind))
      return rope.unsupported("frequencies of their own for the layers of " + std::string(kind));
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string old_key, rope.text("type", "default"));
  EVALCAR_ASSIGN_OR_RETURN(const std::string type, rope.text("rope_type", old_key));
  if (type == "default" || (!plain.empty() && type == plain)) return out;
  if (type != "linear" && type != "llama3")
    return rope.unsupported("rope type \"" + type + "\" (known: default, " +
                            (plain.empty() ? "" : std::string(plain) + ", ") + "linear, llama3)");
  out.scaling = type == "linear" ? RotaryScaling::kLinear : RotaryScaling::kLlama3;
  EVALCAR_ASSIGN_OR_RETURN(out.factor, rope.number("factor", 1e-6, kMostFactor));
  if (out.scaling == RotaryScaling::kLlama3)
    EVALCAR_RETURN_IF_ERROR(read_llama3(fields, rope, out));
  return out;
}

}  // namespace evalcar::models
