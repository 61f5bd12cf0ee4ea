// What was asked for over HTTP, remembered: one SQLite file, `<database>.jobs`, beside the run's.
//
// It is a file of its own since it has a writer of its own: the server's thread, which must answer
// a request at once, whatever the agent's loop is doing. What a job measured is in the run's
// database; here is only who asked for what, and what became of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/state/sqlite.h"

namespace evalcar::state {

/// A row. Times are format_utc() texts, "" for "not yet"; JSON texts are whoever wrote them's.
struct JobRow {
  std::string id;           ///< a UUID
  std::int64_t number = 0;  ///< rises with each job; set by add()
  std::string status;       ///< "queued" | "running" | "completed" | "failed" | "cancelled"
  std::string created_at;
  std::string started_at;
  std::string completed_at;
  std::string request;        ///< JSON: as asked for, with its defaults
  std::string plan;           ///< JSON: what that means here
  std::string result;         ///< JSON, once completed
  std::string error;          ///< why it failed
  std::string details;        ///< JSON: scores, notes
  std::int64_t position = 0;  ///< in the queue, when it was last queued

  bool ended() const { return status != "queued" && status != "running"; }
};

/// Not thread-safe. Every call that changes something is one synced transaction.
class JobBook {
 public:
  /// Creates or opens the file. One that is damaged is moved to `<path>.damaged`, with a word in
  /// `set_aside()`: jobs are not worth an agent that does not start. kUnsupported: of a newer
  /// version; on a file system on which no database is safe (database_place.h), unless that is
  /// allowed.
  static Result<std::unique_ptr<JobBook>> open(FileSystem& files, const std::string& path,
                                               bool allow_network_file_system = false);

  /// Gives it its number and its position: how many are queued before it.
  Status add(JobRow& job);
  /// Everything but id, number, times of creation, request and plan.
  Status update(const JobRow& job);
  Result<std::optional<JobRow>> find(const std::string& id) const;
  /// Those that have not ended, by number.
  Result<std::vector<JobRow>> open_jobs() const;
  /// Of these how many: by status.
  Result<std::int64_t> count(const std::string& status) const;
  /// Of those that ended only the newest `keep` stay.
  Status trim(std::int64_t keep);
  const std::string& set_aside() const { return set_aside_; }

 private:
  JobBook(std::string path, std::shared_ptr<Connection> connection)
      : path_(std::move(path)), connection_(std::move(connection)) {}
  static Result<std::shared_ptr<Connection>> connect(const std::string& path);
  /// After a failed sync the file is opened anew, once, before it is used again.
  Result<Connection*> connection() const;

  std::string path_;
  mutable std::shared_ptr<Connection> connection_;
  std::string set_aside_;
};

}  // namespace evalcar::state
