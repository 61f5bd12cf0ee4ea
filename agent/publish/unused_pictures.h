// The small pictures of samples that no sample has any more, once samples were pruned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::publish {

struct RemovedPictures {
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
  bool more = false;  ///< another call removes others
};

/// Removes from `folder` (protocol::sample_picture_path) what no sample in any of the databases has
/// and nobody asked for in a day: an evaluation that has not told its samples yet asks for its own.
/// At most `most` files, since the agent has other work too. An error, and nothing is removed,
/// where a database cannot be read. Nothing else in the folder is touched; a missing one is
/// success.
Result<RemovedPictures> remove_unused_pictures(FileSystem& files, const Clock& clock,
                                               const std::string& folder,
                                               const std::vector<std::string>& databases,
                                               std::size_t most = 2000);

}  // namespace evalcar::publish
