// What every part of the agent is given.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/publish/live_board.h"
#include "agent/request/desk.h"
#include "agent/watch/notifier.h"
#include "agent/webhook/post.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// What an output directory held when this process first knew all of it.
struct FirstSeen {
  std::int64_t run_id = 0;
  std::map<std::int64_t, std::int64_t> marked_ns;  ///< its trainer_state.json files, by step
};
using FirstSeenOf = std::map<std::string, FirstSeen>;  ///< by the directory's path

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
  /// Kept by this process, whatever is begun anew in it (a reload); null: each agent begins with
  /// nothing.
  FirstSeenOf* first_seen = nullptr;
  /// Asked only where results are posted somewhere.
  std::function<Result<std::unique_ptr<webhook::Poster>>()> make_poster = webhook::make_poster;
};

}  // namespace evalcar::run
