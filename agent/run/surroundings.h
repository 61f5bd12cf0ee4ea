// What every part of the agent is given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/publish/live_board.h"
#include "agent/request/desk.h"
#include "agent/watch/notifier.h"
#include "agent/webhook/post.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// All of it outlives whom it is given to.
struct Surroundings {
  FileSystem& files;
  const Clock& clock;
  std::function<bool()> stopping;         ///< true ends long work; may be null
  std::string version;                    ///< of the program
  std::vector<std::string> self_command;  ///< how to run `evalcar` itself
  std::function<std::unique_ptr<watch::Notifier>()> make_notifier;
  /// Other names of a task's metrics; may be null.
  std::function<std::vector<std::string>(const std::string& task, const std::string& metric)>
      aliases;
  request::JobDesk* desk = nullptr;     ///< of the HTTP API; null: there is none
  std::string evaluator_program = {};   ///< its path; "": nothing is asked of it but evaluations
  publish::LiveBoard* board = nullptr;  ///< of the HTTP API; null: there is none
  /// When this process began, in nanoseconds of the wall clock, whatever was begun anew since (a
  /// reload); absent: now.
  std::optional<std::int64_t> started_ns = {};
  /// Asked only where results are posted somewhere.
  std::function<Result<std::unique_ptr<webhook::Poster>>()> make_poster = webhook::make_poster;
};

}  // namespace evalcar::run
