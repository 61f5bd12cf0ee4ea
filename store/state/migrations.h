// The SQL that makes each version of the schema of the one before it.
#pragma once

#include <array>

#include "store/state/schema.h"

namespace evalcar::state {

/// Makes version 1 of an empty file.
extern const char* const kVersion1;

/// migrations()[v] brings a file from version v to v + 1.
const std::array<const char*, kSchemaVersion>& migrations();

}  // namespace evalcar::state
