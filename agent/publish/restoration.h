// What was published and is not in the files any more, since somebody deleted it or it could not be
// written: the database knows it, and it is written again as it was.
//
// A long run has tens of thousands of lines: they are looked at in pages from the database and in
// slices, each of which goes on where the last one was cut. Between two slices only places are
// remembered; a kill begins anew and finds what is done already.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "agent/publish/evaluation_files.h"
#include "agent/publish/event_log.h"
#include "agent/publish/metrics_log.h"
#include "agent/publish/publisher.h"

namespace evalcar::publish {

/// Not thread-safe.
class Restoration {
 public:
  /// All of them must outlive it.
  Restoration(FileSystem& files, const state::Store& store, const PublisherOptions& options,
              MetricsLog& log, EventLog& events, EvaluationFiles& results)
      : files_(files),
        store_(store),
        options_(options),
        log_(log),
        events_(events),
        results_(results) {}

  /// Brings the lines into metrics.jsonl that were decided and are not there. Who reads it from
  /// where he stopped must not miss one that comes after a larger seq, so nothing is appended
  /// before. After MetricsLog::refresh(). kCancelled: a slice was cut.
  Status write_missing_lines(std::int64_t run_id);
  /// A line is being decided that the file does not have yet.
  void line_begins() { whole_.reset(); }
  /// It is there now, as all others.
  void line_is_there(std::int64_t run_id) { whole_ = {run_id, log_.looks()}; }

  /// Writes results files and events again that are gone. kCancelled: a slice was cut.
  Status restore_files(std::int64_t run_id);

 private:
  /// A look for lines that the file lacks.
  struct Missing {
    std::int64_t run_id = 0;
    std::int64_t look = 0;         ///< of the log, whose lines were compared
    std::int64_t results = 0;      ///< the last seq of a result's line that was looked at
    std::int64_t interims = 0;     ///< the same of scores of a part
    LogRewrite::Lines lines = {};  ///< found so far
  };
  /// A look at results files and events.
  struct Restoring {
    std::int64_t run_id = 0;
    std::int64_t through = 0;  ///< the last seq that was looked at
    bool events_gone = false;  ///< the event file lacks some
  };

  Status find_missing(Missing& look) const;
  Status restore_from(Restoring& look, std::vector<TimedEvent>& events, std::int64_t& through);
  Status restore_one(const state::Publication& publication, bool events_gone,
                     std::vector<TimedEvent>& events);
  Status ask_enough() const;

  FileSystem& files_;
  const state::Store& store_;
  const PublisherOptions& options_;
  MetricsLog& log_;
  EventLog& events_;
  EvaluationFiles& results_;
  /// The run whose decided lines are all in the file, and at which look; absent: not known.
  std::optional<std::pair<std::int64_t, std::int64_t>> whole_;
  // Of looks that were cut; absent: the next one begins anew.
  std::optional<Missing> missing_;
  std::optional<Restoring> restoring_;
};

}  // namespace evalcar::publish
