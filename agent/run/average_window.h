// Which checkpoints are members of averages to come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace evalcar::run {

/// Indexes into `steps` (rising; of checkpoints that are known whole) of those that an average over
/// `last` of them that is yet to be formed may have as members: the newest `newest`, and those
/// around each step of `open`, which may still become whole, or whole anew. Of many such steps the
/// newest few count: the window is linked in one turn.
std::set<std::size_t> members_to_come(const std::vector<std::int64_t>& steps,
                                      const std::set<std::int64_t>& open, std::size_t last,
                                      std::size_t newest);

}  // namespace evalcar::run
