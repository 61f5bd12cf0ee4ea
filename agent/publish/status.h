// status.json, and what `evalcar status` prints: what the sidecar does now.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/report/pace.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/state/reader.h"

namespace evalcar::publish {

/// How the output directory is watched.
struct WatchFacts {
  std::string file_system;  ///< "ext4", "NFS", …; "" while that is not known
  std::string mode;         ///< "notices and polling", or "polling" alone
  double poll_interval_s = 0;
  std::string trouble;  ///< why by polling alone, or why not at all; else ""
};

/// The evaluation that runs now.
struct CurrentFacts {
  std::int64_t evaluation_id = 0;
  std::int64_t step = 0;
  std::string checkpoint_type;
  report::WorkDone work;
};

/// What `status` says besides the evaluations.
struct AgentFacts {
  std::int64_t pid = 0;
  std::string version;
  double uptime_s = 0;
  std::string device;   ///< what the evaluator runs on; "" until it said so
  std::string warning;  ///< e.g. "no GPU seen, running on the CPU"
  /// Why nothing can be measured, or be handed out, until that is over; "": nothing is known to
  /// stand in the way. Not all that is warned of is such a thing, and a file system that does not
  /// answer is told in `watching`.
  std::string hindrance;
  bool busy = false;  ///< an evaluation runs, maybe of another output directory
  std::optional<std::int64_t> latest_step;  ///< of the newest checkpoint folder seen
  std::optional<WatchFacts> watching;
  /// It has ended in good order, with this exit code; absent while it runs.
  std::optional<int> exit_code;
  /// publish.keep_best and publish.metric_for_best_model: whether a trainer that loads its best
  /// checkpoint at the end will find it. Absent: not known.
  std::optional<std::int64_t> keep_best;
  std::string metric_for_best_model;
  std::vector<std::int64_t> pinned;     ///< steps whose weights stay (evalcar pin)
  std::optional<CurrentFacts> current;  ///< absent: no evaluation of this database runs
};

/// The JSON document of `status` where there is no database yet.
std::string empty_status_json(const Clock& clock);

/// How many evaluations a status lists: those of the highest steps, and whatever runs. Those of a
/// step that wait are listed all or none; where they are not, nothing that ended of that step is
/// either: a part of a step would tell a reader that the step is over.
struct StatusMost {
  std::size_t ended = static_cast<std::size_t>(-1);
  std::size_t open = static_cast<std::size_t>(-1);  ///< of those that wait
};

/// The JSON document of `status`, with "time"; evaluations of the newest run (or of all runs, if
/// run_id is absent). `agent` absent: nobody runs, "agent" is null. "states" counts all of them;
/// "evaluations_left_out" tells how many are not listed, "open_left_out" how many of these wait.
Result<std::string> status_json(const state::Reader& reader, const Clock& clock,
                                std::optional<std::int64_t> run_id,
                                const std::optional<AgentFacts>& agent,
                                const StatusMost& most = {});

/// The rows of a status, as they were when the database was last changed: the heartbeat of an agent
/// that has nothing to do reads none of them, nor does a page that shows it. For one reader and one
/// `most`.
class StatusRows {
 public:
  StatusRows();
  ~StatusRows();
  /// Reads them, if anything was written since, through this connection or another.
  Status refresh(const state::Reader& reader, std::optional<std::int64_t> run_id,
                 const StatusMost& most);

  struct Content;
  const Content& content() const { return *content_; }

 private:
  std::unique_ptr<Content> content_;
};

/// The same document of rows that were read.
Result<std::string> status_json(const state::Reader& reader, const Clock& clock,
                                const std::optional<AgentFacts>& agent, const StatusRows& rows);

/// Replaces `path` (status.json: the heartbeat) with it. It lists 300 evaluations that ended and
/// 100 that wait: however long the run or the backlog is, it is written every few seconds.
Status write_status(FileSystem& files, const state::Reader& reader, const Clock& clock,
                    const std::string& path, std::optional<std::int64_t> run_id,
                    const AgentFacts& agent, StatusRows& rows);

}  // namespace evalcar::publish
