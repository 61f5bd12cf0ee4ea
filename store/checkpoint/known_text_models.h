// What a config.json says of a model of the families whose tensors are known by name: of what its
// layers, its head and its tower of pictures are made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "store/base/file_system.h"

namespace evalcar::checkpoint {

/// Of a text model, alone or a part of one that takes pictures. Absent numbers: not stated.
struct KnownTextModel {
  std::optional<std::uint64_t> layers;
  std::optional<std::uint64_t> hidden;
  std::optional<std::uint64_t> vocabulary;
  bool has_experts = false;  ///< some of its layers are mixtures
  std::optional<std::uint64_t> experts;
  bool has_query_biases = false;   ///< of query, key and value
  bool has_output_biases = false;  ///< of what attention gives out
  bool has_query_norms = false;    ///< of each head's queries and keys
  bool has_own_head = false;       ///< it generates, and nothing ties its head
  /// Blocks of Qwen's tower of pictures; absent where there is none, or another one.
  std::optional<std::uint64_t> tower_blocks;
};

/// Reads config.json at `path`. Absent where it cannot be read, is of another family, or the
/// weights are quantised.
std::optional<KnownTextModel> read_known_text_model(const FileSystem& files,
                                                    const std::string& path);

}  // namespace evalcar::checkpoint
