// The names that torchtitan gives the tensors of a Llama or a dense Qwen3, and those that
// transformers loads.
//
// torchtitan trains these models in modules of its own, which are called as the original Llama's.
// Its checkpoints are DCP folders of them, with no configuration, so that what else has to be
// known (the model's family, its heads) is in that of the model that training started from.
// Reference: the state_dict_adapter.py of llama3 and qwen3, torchtitan 0.2.2 and 0.3.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Whether the tensors have torchtitan's names. Another model may share some; together they are
/// theirs alone.
bool has_torchtitan_names(const Plan& plan);

/// Gives tensors with torchtitan's names those of transformers, and the rows of a Llama's wq and wk
/// the order that they have there; `config_text` is the configuration of the model that training
/// started from, `where` names it. Changes nothing where the names are others, where the
/// configuration is of another family, or where a tensor has a name that the family has none for:
/// whoever needs the model's names then misses them. kCorruption where wq or wk does not have the
/// rows of the configuration's heads, or where the text is no JSON.
Status take_torchtitan_names(Plan& plan, std::string_view config_text, const std::string& where);

/// Of a tensor [heads · head_dim, columns] whose rows come in pairs (the original Llama rotates
/// rows 2i and 2i + 1 of a head together), all first ones of a head before its second ones
/// (transformers rotates i and i + head_dim / 2). Whole pieces become pieces with twice the stride.
/// `heads` divides the rows into even parts.
void split_pairs_of_rows(TensorPlan& tensor, std::int64_t heads);

}  // namespace evalcar::checkpoint
