// How fast the pairs of a head turn: the rope_parameters of a configuration. Without libtorch.
#pragma once

#include <optional>
#include <string_view>

#include "evaluator/models/config_fields.h"
#include "store/base/result.h"

namespace evalcar::models {

enum class RotaryScaling {
  kNone,
  kLinear,  ///< all frequencies divided by `factor` (Chen et al. 2023)
  kLlama3,  ///< the slow ones alone, with a ramp between (Llama 3.1, Grattafiori et al. 2024)
};

struct RotarySettings {
  double theta = 10000.0;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;
  // kLlama3: a wavelength above original_positions / low_frequency is slow, one below
  // original_positions / high_frequency stays as it is.
  double low_frequency = 1.0;
  double high_frequency = 4.0;
  double original_positions = 8192.0;
};

/// The object that transformers 5.17 reads: rope_scaling (4.x) where there is one that says
/// anything, else rope_parameters (5.x).
Result<std::optional<ConfigFields>> rotary_object(const ConfigFields& fields);

/// rope_theta stands in that object (5.x) or beside it (4.x). `plain`: a further name of the type
/// "default" ("mrope"), or empty. kUnsupported by name for other types (yarn, dynamic, longrope),
/// for frequencies of their own per kind of layer and for heads that turn in part.
Result<RotarySettings> read_rotary(const ConfigFields& fields, double default_theta,
                                   std::string_view plain = {});

}  // namespace evalcar::models
