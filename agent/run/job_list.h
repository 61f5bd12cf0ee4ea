// The open jobs of the desk, followed through the output directories that they are about.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/request/desk.h"
#include "agent/run/output_directory.h"
#include "agent/run/surroundings.h"

namespace evalcar::run {

/// Not thread-safe: the loop's thread. `around` and its desk must outlive it.
class JobList {
 public:
  using Directories = std::vector<std::unique_ptr<OutputDirectory>>;
  /// Opens a directory that is not watched yet; an error says why a job on it cannot be done. Null:
  /// it may be one that is watched and that cannot be asked now.
  using Open = std::function<Result<OutputDirectory*>(const std::string& path)>;

  JobList(const Surroundings& around, request::JobDesk& desk, Open open)
      : around_(around), desk_(desk), open_(std::move(open)) {}

  /// Tells the desk how each job stands. `task`: at which the evaluation that runs is, "" if none
  /// does or that is not known. An error is of the moment.
  Status step(const Directories& directories, const std::string& task);
  /// The evaluation that runs is one that only cancelled jobs asked for.
  bool is_cancelled(const OutputDirectory& directory, std::int64_t evaluation) const;
  /// An open job is about it.
  bool needs(const OutputDirectory& directory) const;
  /// It is closed; no open job may be about it.
  void forget(const OutputDirectory& directory);
  /// Something happened: the next step looks at once.
  void hurry() { due_ = all_due_ = {}; }
  int descriptor() const { return desk_.descriptor(); }
  /// How long the loop may sleep; absent: as long as it likes.
  std::optional<MonotonicTime> due() const;

 private:
  struct Followed {
    bool asked = false;  ///< its directory was asked about it
    OutputDirectory* directory = nullptr;
    /// For how long its directory, whenever it could be asked, knew no such checkpoint.
    MonotonicTime::duration unseen{};
    std::optional<MonotonicTime> unseen_at;  ///< the last look, if that said so
    std::optional<std::int64_t> own_row;     ///< the evaluation that only jobs want
    MonotonicTime since{};
    std::string told;  ///< status, reason and progress
    std::int64_t first_done = 0;
    std::optional<MonotonicTime> counting_since;
  };
  Status look(const request::JobDesk::OpenJob& job, const Directories& directories);
  Result<OutputDirectory*> directory_of(const request::JobPlan& plan, const Followed& followed,
                                        const Directories& directories);
  void wait_unseen(const request::JobPlan& plan, Followed& followed,
                   std::optional<MonotonicTime> since);
  void tell(request::JobNews news, Followed& followed);
  void estimate(request::JobNews& news, Followed& followed) const;

  const Surroundings& around_;
  request::JobDesk& desk_;
  Open open_;
  std::string task_;     ///< of the evaluation that runs
  bool looked_ = false;  ///< the desk may have jobs of an agent before this one
  std::map<std::string, Followed> followed_;
  /// Evaluations of their own that open jobs want, by directory.
  std::map<const OutputDirectory*, std::set<std::int64_t>> wanted_;
  std::map<const OutputDirectory*, std::set<std::int64_t>> given_up_;
  MonotonicTime due_{};
  MonotonicTime all_due_{};
};

}  // namespace evalcar::run
