// The runs of this agent for people and for Prometheus: what it says of itself, from the board, and
// the numbers, from the databases, on read-only connections of their own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/publish/live_board.h"
#include "store/base/clock.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::http {

/// Not thread-safe: the worker's thread.
class LiveRuns {
 public:
  /// Both must outlive it.
  LiveRuns(const Clock& clock, const publish::LiveBoard& board) : clock_(clock), board_(board) {}

  /// Prometheus' text of all of them.
  Result<std::string> prometheus();

 private:
  /// A connection is opened once. kNotFound and others as Reader::open.
  Result<const state::Reader*> reader_of(const std::string& database);

  const Clock& clock_;
  const publish::LiveBoard& board_;
  std::map<std::string, state::Reader> readers_;  ///< by database
};

}  // namespace evalcar::http
