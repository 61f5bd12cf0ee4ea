// Which runs a command means that names none.
#pragma once

#include <cstdint>
#include <vector>

#include "store/state/reader.h"

namespace evalcar::request {

/// The newest generation of each output directory of this database.
Result<std::vector<std::int64_t>> newest_runs(const state::Reader& rows);

}  // namespace evalcar::request
