// The families of mixtures whose experts transformers 5 holds in other tensors than the hub has.
// Reference: conversion_mapping.py of transformers 5.17, and the modules of 4.57.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::checkpoint {

/// How the hub has the experts of a family.
enum class ExpertForm {
  kProjections,  ///< N.gate_proj.weight, N.up_proj.weight, N.down_proj.weight
  kNumbers,      ///< the same as N.w1.weight, N.w3.weight, N.w2.weight
  kTransposed,   ///< stacked, [experts, hidden, 2 · inner] and [experts, inner, hidden]
  kStacked,      ///< as 5.x has them, by other names
};

/// One tensor's name below the module around the experts, in 5.x and on the hub; empty: none.
struct ExpertNamePair {
  std::string_view theirs;
  std::string_view ours;
};

/// One that is known.
struct ExpertFamily {
  std::string_view model_type;
  ExpertForm form;
  std::string_view module = {};  ///< the hub's name of the module around the experts, `mlp` in 5.x
  /// What else in the module is called otherwise, or lies elsewhere as the module is called so.
  std::array<ExpertNamePair, 3> below = {};
};

/// The family of a model by its configuration: the whole model's `model_type`, else that of a text
/// model that is a part of it. Null: none of them. kCorruption where the text is no JSON; `where`
/// names it.
Result<const ExpertFamily*> find_expert_family(std::string_view config_text,
                                               const std::string& where);

}  // namespace evalcar::checkpoint
