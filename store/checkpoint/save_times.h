// Whether the files of a checkpoint's ranks are of one save, by the times at which they were
// written: nothing in them names the save.
#pragma once

#include <string>

#include "store/base/file_system.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Files of one save are written after one barrier. Says by how much they are further apart than
/// kSaveSpreadNs and than any rank took for its own files (its optimizer and states count, where
/// they lie beside): a rank's weights are then probably of another save. Empty if they are not, for
/// layouts that one process writes, and for DCP with a `.metadata`, which is written last and names
/// all files. A doubt and no proof: copying the weights alone takes time, too.
std::string doubt_of_one_save(const FileSystem& files, const Plan& plan);

inline constexpr std::int64_t kSaveSpreadNs = std::int64_t{300} * 1'000'000'000;

}  // namespace evalcar::checkpoint
