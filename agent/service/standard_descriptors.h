// Descriptors 0, 1 and 2 are somebody's, or nobody's.
#pragma once

namespace evalcar::agent_service {

/// Where standard input, output or error is closed, the next file that is opened would take its
/// number, and what is meant for a person would go into it: into the database, say. Such a number
/// is taken by /dev/null, opened so that reading or writing there fails as it did. Call it first
/// in main(). False: not possible (no /dev/null, no descriptors left).
bool occupy_standard_descriptors();

}  // namespace evalcar::agent_service
