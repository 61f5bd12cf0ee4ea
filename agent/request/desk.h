// The desk between the HTTP server's thread and the agent's loop: jobs lie here until they have
// ended, news of them until the server has taken them.
//
//   server  submit, cancel ──▶ │ open jobs │ ──▶ loop: open_jobs, whenever it was woken
//   server  take_news ◀────────│ news      │ ◀── loop: tell
//
// Neither side ever waits for the other. What must outlive the process is in the server's job book
// and in the run's database; what lies here is told again after a restart.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/guarded.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::request {

/// An evaluation that somebody asked for, in words of ours.
struct JobPlan {
  std::string id;
  std::string checkpoint;  ///< the folder's real path
  std::string kind = "regular";
  std::string dtype = "auto";
  protocol::EvaluationSettings settings;
  std::string output_dir;  ///< "": where this run's results lie
  bool log_samples = true;
  bool operator==(const JobPlan&) const = default;
};
/// One JSON object.
std::string encode(const JobPlan& plan);
Result<JobPlan> decode_plan(std::string_view text);

/// What has become of a job. Only the newest news of each job counts.
struct JobNews {
  std::string id;
  std::string status;   ///< "queued" | "running" | "completed" | "failed" | "cancelled"
  std::string reason;   ///< why it waits, or why it failed
  std::string result;   ///< JSON, once completed: the files
  std::string details;  ///< JSON, once completed: the numbers
  std::string stage;    ///< while it runs
  std::string task;
  std::int64_t done = 0;
  std::int64_t total = 0;
  double eta_s = -1;  ///< below 0: not known
  /// Nothing was begun for it: its weights are looked at, or its directory cannot be asked now.
  bool undecided = false;
  bool ended() const { return status != "queued" && status != "running"; }
};

/// Thread-safe.
class JobDesk {
 public:
  JobDesk();
  ~JobDesk();
  JobDesk(const JobDesk&) = delete;
  JobDesk& operator=(const JobDesk&) = delete;

  // ---- the server's side
  void submit(JobPlan plan);
  /// The job is to end as cancelled; the news will say what it has become.
  void cancel(const std::string& id);
  std::vector<JobNews> take_news();
  /// Called, from the loop's thread, after news came; null: nobody is told.
  void on_news(std::function<void()> call);

  // ---- the loop's side
  struct OpenJob {
    JobPlan plan;
    bool cancelled = false;
  };
  /// In the order in which they came.
  std::vector<OpenJob> open_jobs() const;
  /// A job that has ended leaves the desk.
  void tell(JobNews news);
  /// Readable after submit() or cancel(), until it is calmed.
  int descriptor() const { return wake_; }
  /// Whether something came since the last call.
  bool calm();

 private:
  struct State {
    std::int64_t next = 0;
    std::map<std::int64_t, OpenJob> open;  ///< by order
    std::map<std::string, JobNews> news;
    std::function<void()> on_news;
  };
  void wake() const;
  Guarded<State> state_;
  int wake_ = -1;
};

}  // namespace evalcar::request
