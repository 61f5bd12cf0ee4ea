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

/// Exact match of module and name; absent for everything that is not on the list.
std::optional<KnownGlobal> known_global(std::string_view module, std::string_view name);

/// How a global may be used by the machine.
bool may_reduce(PickleGlobal global);
bool may_newobj(PickleGlobal global);

}  // namespace evalcar::checkpoint
