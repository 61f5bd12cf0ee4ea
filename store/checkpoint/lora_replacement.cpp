#include "store/checkpoint/lora_replacement.h"

#include <string_view>
#include <utility>

#include "store/checkpoint/convert.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

/// Whether the base has the experts one by one ("….experts.0.…") that the tensor
/// ("….experts.gate_up_proj") has together, as modules of transformers 5 do.
bool has_experts_apart(const BaseNames& names, const std::string& target) {
  const std::size_t dot = target.rfind('.');
  if (dot == std::string::npos || !target.substr(0, dot).ends_with(".experts")) return false;
  return names.has_shared_prefix(shared_name(target.substr(0, dot) + ".0."));
}

/// Whether the base has other tensors of the layer ("layers.3.") that the tensor lies in.
bool is_in_layer_of_base(const BaseNames& names, const std::string& target) {
  const std::string name = shared_name(target);
  for (std::size_t begin = 0, dot = name.find('.'); dot != std::string::npos;
       begin = dot + 1, dot = name.find('.', begin)) {
    const std::string_view part = std::string_view(name).substr(begin, dot - begin);
    if (part.empty() || part.find_first_not_of("0123456789") != std::string_view::npos) continue;
    if (names.has_shared_prefix(name.substr(0, dot + 1))) return true;
  }
  return false;
}

}  // namespace

Status put_in_place(TensorPlan& old, const std::string& target, TensorPlan tensor) {
  if (tensor.shape != old.shape) {
    return make_error(ErrorCode::kInvalidArgument,
                      "replaces tensor " + quote_name(target) + " by one of shape " +
                          shape_text(tensor.shape) + ", the base model's is " +
                          shape_text(old.shape) +
                          " (a resized vocabulary? give the base model that was trained)");
  }
  if (tensor.dtype != old.dtype) {
    if (!is_convertible(tensor.dtype) || !is_convertible(old.dtype)) {
      return make_error(ErrorCode::kUnsupported, "replaces tensor " + quote_name(target) + " of " +
                                                     std::string(dtype_name(old.dtype)) +
                                                     " by one of " +
                                                     std::string(dtype_name(tensor.dtype)));
    }
    old.stored_dtype = tensor.dtype;
  } else {
    old.stored_dtype.reset();
  }
  old.pieces = std::move(tensor.pieces);
  return {};
}

Status check_is_new(const BaseNames& names, const std::string& target) {
  if (has_experts_apart(names, target)) {
    return make_error(
        ErrorCode::kUnsupported,
        "replaces " + quote_name(target) +
            ", all experts of a layer in one tensor; the base model's files hold each expert by "
            "itself, and it is not taken apart here: merge it with peft (merge_and_unload)");
  }
  if (is_in_layer_of_base(names, target)) {
    return make_error(ErrorCode::kUnsupported,
                      "replaces tensor " + quote_name(target) +
                          ", which the base model's layer does not have by that name: releases of "
                          "transformers call it otherwise (a mixture's router?); merge it with "
                          "peft (merge_and_unload)");
  }
  return {};
}

}  // namespace evalcar::checkpoint
