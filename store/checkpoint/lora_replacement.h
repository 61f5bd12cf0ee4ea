// A whole tensor of an adapter (modules_to_save, a bias) in the place of one of its base model, or
// beside those that it has.
#pragma once

#include <string>

#include "store/base/result.h"
#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Gives `old`, a tensor of the base, the values of `tensor`, which the adapter has for `target`.
/// kInvalidArgument where the shapes differ, kUnsupported where one dtype cannot become the other.
Status put_in_place(TensorPlan& old, const std::string& target, TensorPlan tensor);

/// Refuses a tensor that the base has under another name or in another form, so that both would lie
/// in the merged weights, the untrained one beside the trained one: kUnsupported. `names` are the
/// base's, none of which is `target`.
Status check_is_new(const BaseNames& names, const std::string& target);

}  // namespace evalcar::checkpoint
