// Which of several evaluators this process is: from the variables that launchers set. The agent
// clears the trainer's for its children, so what stands there was meant for us.
#pragma once

#include <functional>
#include <string>

#include "store/base/result.h"

namespace evalcar::service {

struct Rank {
  int local = 0;  ///< LOCAL_RANK: which of the visible GPUs
  int rank = 0;   ///< RANK
  int world = 1;  ///< WORLD_SIZE
  bool operator==(const Rank&) const = default;
};

/// `variable(name)`: as std::getenv. kInvalidArgument, with the variable's name and value, for what
/// is no whole number or does not go together; kUnsupported for a world of more than one, which no
/// evaluation can be spread over yet.
Result<Rank> read_rank(const std::function<const char*(const char*)>& variable);

/// "cuda" is the GPU of this rank; every other name stays.
std::string device_of_rank(const std::string& device, const Rank& rank);

}  // namespace evalcar::service
