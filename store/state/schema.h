// The tables and views of FORMAT.md, and how an older file becomes a newer one.
#pragma once

#include <cstdint>

#include "store/base/result.h"
#include "store/state/sqlite.h"

namespace evalcar::state {

inline constexpr std::int64_t kSchemaVersion = 10;
inline constexpr std::int64_t kApplicationId = 0x65766c63;  // "evlc"

/// The schema's number of an open file; 0 for an empty one. kUnsupported if it is newer than ours;
/// kInvalidArgument if it is somebody else's database. Changes nothing.
Result<std::int64_t> check_schema(Connection& connection);

/// Brings the file from `version` to kSchemaVersion in one transaction; kCorruption if a row refers
/// to one that is not there. Leaves `foreign_keys` off.
Status migrate(Connection& connection, std::int64_t version);

}  // namespace evalcar::state
