// The names that a restricted pickle may use: all others are refused.
#pragma once

#include <optional>
#include <string_view>

#include "store/checkpoint/dtype.h"
#include "store/checkpoint/pickle.h"

namespace evalcar::checkpoint {

struct KnownGlobal {
  PickleGlobal global{};
  DType dtype{};  ///< of kDType and kTypedStorage
};

/// Exact match of module and name; absent for everything that is not on that list.
std::optional<KnownGlobal> known_global(PickleNames names, std::string_view module,
                                        std::string_view name);

/// How a global may be used by the machine.
bool may_reduce(PickleGlobal global);
bool may_newobj(PickleGlobal global);
/// Whether its state, which BUILD sets, is a tuple and not a dict.
bool has_tuple_state(PickleGlobal global);
/// Whether an object of it may be a dict's key.
bool is_hashable(PickleGlobal global);

}  // namespace evalcar::checkpoint
