// The numbers of a decoder: what the language models of the known families differ in.
//
// All of them are one model (Vaswani et al. 2017, as LLaMA made it: Touvron et al. 2023): an
// embedding; layers of grouped-query attention with rotary positions and of SwiGLU, each behind an
// RMSNorm and added to the residual stream; a norm and a head. A family is a set of switches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evaluator/models/config_fields.h"
#include "evaluator/models/rotary_settings.h"
#include "store/base/result.h"

namespace evalcar::models::decoder {

struct Config {
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  RotarySettings rope;
  /// (head_dim / 2): which of a token's three positions turns each frequency; 0 in a text model.
  std::vector<std::int64_t> position_axis;
  bool qkv_bias = false;
  bool output_bias = false;  ///< of the attention's output
  bool mlp_bias = false;
  bool qk_norm = false;  ///< an RMSNorm over each head of queries and keys, before they are turned
  bool tied_head = false;      ///< lm_head shares embed_tokens
  std::int64_t window = 0;     ///< tokens that a token of a windowed layer sees, itself included
  std::vector<bool> windowed;  ///< (layers)
};

/// What transformers 5.17 takes for a key that is not there.
struct Defaults {
  std::optional<std::int64_t> kv_heads = {};  ///< absent: as many as heads
  std::optional<std::int64_t> head_dim = {};  ///< absent: hidden / heads
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::string_view plain_rope = {};  ///< another name of rope type "default"
};

/// The numbers that all families name alike, checked; no biases, norms or windows, position axis 0.
/// kCorruption for absurd or contradicting ones; kUnsupported by name for what this program does
/// not compute (other activations, other rope types).
Result<Config> read_config(const ConfigFields& fields, const Defaults& defaults = {});

/// For a family whose layers all see everything: kUnsupported for layer_types that say otherwise,
/// or without them a sliding_window of fewer than all positions. transformers prefills such a model
/// without windows and decodes it with them (DynamicCache of 5.17).
Status refuse_windows(const ConfigFields& fields, const Config& config);

/// layer_types alone, in `windowed`; where the key is absent or null that stays as it is.
/// kCorruption where a layer has a window and `window` is 0.
Status read_layer_types(const ConfigFields& fields, Config& config);

/// The windows of Qwen2 and later: layer_types, or the layers from max_window_layers on (from
/// `first_windowed` on where the key is absent) where use_sliding_window is set.
Status read_layer_windows(const ConfigFields& fields, std::int64_t first_windowed, Config& config);

}  // namespace evalcar::models::decoder
