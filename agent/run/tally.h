// How the evaluations of a directory ended, for the exit code.
#pragma once

#include <cstdint>

#include "agent/run/wanted.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::run {

/// What is not wanted any more (other settings, a generation of a checkpoint that was written
/// again) counts only in the total.
struct Tally {
  std::int64_t published = 0;
  std::int64_t failed = 0;       ///< quarantined, lost, or published without some of its tasks
  std::int64_t unpublished = 0;  ///< scored, but the files could not be written
  std::int64_t open = 0;
  std::int64_t total = 0;
};

/// Exit codes of `evalcar run` (design.md, "Command line").
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kConfiguration = 2;
inline constexpr int kNothing = 3;
inline constexpr int kPartly = 4;

/// Errors: the store's.
Result<Tally> tally_of(const state::Reader& rows, const Wanted& wanted, std::int64_t run_id);
/// Of all that was there.
int exit_code_of(const Tally& tally);

}  // namespace evalcar::run
