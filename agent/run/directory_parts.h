// What an output directory of the agent consists of, made in the order in which each part knows
// only those above it. What they do together, turn by turn, is OutputDirectory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/config/settings.h"
#include "agent/publish/status.h"
#include "agent/request/inbox.h"
#include "agent/run/answers.h"
#include "agent/run/averages.h"
#include "agent/run/best_kept.h"
#include "agent/run/completion.h"
#include "agent/run/current_run.h"
#include "agent/run/disk_guard.h"
#include "agent/run/disk_space.h"
#include "agent/run/disk_view.h"
#include "agent/run/last_step.h"
#include "agent/run/leases.h"
#include "agent/run/misplaced_home.h"
#include "agent/run/needed_leases.h"
#include "agent/run/outcomes.h"
#include "agent/run/pins.h"
#include "agent/run/posting.h"
#include "agent/run/publishing.h"
#include "agent/run/recorder.h"
#include "agent/run/requested.h"
#include "agent/run/sightings.h"
#include "agent/run/silence.h"
#include "agent/run/snapshots.h"
#include "agent/run/status_file.h"
#include "agent/run/surroundings.h"
#include "agent/run/take_up.h"
#include "agent/run/tally.h"
#include "agent/run/training_end.h"
#include "agent/run/unfinished.h"
#include "agent/run/unwanted.h"
#include "agent/run/waiting_list.h"
#include "agent/run/wanted.h"
#include "agent/schedule/schedule.h"
#include "agent/stage/stage.h"
#include "agent/watch/watcher.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe.
class DirectoryParts {
 protected:
  /// What opening gives.
  struct Opened {
    std::string path;
    HomePlace home;
    std::unique_ptr<state::Store> store;
    std::unique_ptr<Posting> posting;
    std::string misplaced;  ///< why our folder lies where it must not; else ""
  };
  /// Opens the database and recovers what a kill interrupted; our folder is moved to its place.
  /// kUnavailable: another agent has it.
  static Result<Opened> open(const Surroundings& around, const config::Settings& settings,
                             const std::string& path);

  /// `looked_at`: what is there is known, for the answers to commands. All must outlive it.
  DirectoryParts(const Surroundings& around, const config::Settings& settings, Opened opened,
                 std::function<bool()> looked_at);
  ~DirectoryParts() = default;

  /// Adds what the parts say of themselves, for the status. `turn_trouble`: of the last turn.
  void add_facts(publish::AgentFacts& facts, const std::string& turn_trouble);
  /// What of it keeps anything here from being measured or handed out; "": nothing.
  std::string hindrance(const std::string& turn_trouble) const;

  const Surroundings& around_;
  const config::Settings& settings_;
  std::string path_;
  HomePlace home_;
  std::unique_ptr<state::Store> store_;
  std::unique_ptr<watch::Notifier> notifier_;
  watch::Watcher watcher_;
  DiskView view_;
  InFlight in_flight_;
  // Each knows only those above it.
  stage::Stage stage_;
  stage::Stage pinned_;
  Wanted wanted_;
  DiskSpace space_;
  KeptForBest kept_;
  Averages averages_;
  BestKept best_;
  Leases leases_;
  Pins pins_;
  DiskGuard guard_;
  Completion completion_;
  CurrentRun run_;
  TakeUp take_up_;
  Recorder recorder_;
  Sightings sightings_;
  Snapshots snapshots_;
  LastStep last_step_;
  Unfinished unfinished_;
  Publishing publishing_;
  std::unique_ptr<Posting> posting_;
  Requested requested_;
  UnwantedRows unwanted_;
  Leftovers leftovers_;
  NeededLeases needed_;
  WaitingList waiting_;
  Outcomes outcomes_;
  StatusFile status_;
  Silence silence_;
  TrainingEnd end_;
  request::Inbox inbox_;
  Answers answers_;
  MisplacedHome misplaced_;
};

}  // namespace evalcar::run
