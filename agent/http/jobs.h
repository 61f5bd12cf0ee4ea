// The jobs as clients see them. What is remembered is in the book; what runs is told by the desk.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "agent/http/evaluate_request.h"
#include "agent/http/message.h"
#include "agent/request/desk.h"
#include "store/base/clock.h"
#include "store/state/job_book.h"

namespace evalcar::http {

struct JobLimits {
  std::int64_t open = 1'000;    ///< queued and running; further ones are answered with 429
  std::int64_t ended = 10'000;  ///< that are remembered
};

/// Not thread-safe: the server's thread. What was open in the book when it began is given to the
/// desk again.
class Jobs {
 public:
  /// `clock` and `desk` must outlive it.
  static Result<std::unique_ptr<Jobs>> begin(const Clock& clock, request::JobDesk& desk,
                                             std::unique_ptr<state::JobBook> book,
                                             JobLimits limits = {});

  /// Queued, and on disk; or 429, or 503 where the book cannot be written.
  Response submit(Wish wish, const Peer& client);
  /// JobInfo, or 404.
  Response info(const std::string& id);
  /// Cancels a job that waits or runs; 404, or 400 where it has ended.
  Response cancel(const std::string& id);
  /// QueueStatusResponse.
  Response queue() const;
  std::int64_t queued() const { return static_cast<std::int64_t>(queued_.size()); }
  /// Takes what the loop has told. To be called when the desk says that there is some, too.
  void take_news();

 private:
  Jobs(const Clock& clock, request::JobDesk& desk, std::unique_ptr<state::JobBook> book,
       JobLimits limits)
      : clock_(clock), desk_(desk), book_(std::move(book)), limits_(limits) {}
  Status load();
  void take(const request::JobNews& news);
  void note(const state::JobRow& row);
  void log_progress(const request::JobNews& news);

  const Clock& clock_;
  request::JobDesk& desk_;
  std::unique_ptr<state::JobBook> book_;
  JobLimits limits_;
  std::map<std::int64_t, std::string> queued_;  ///< number → id
  std::map<std::int64_t, std::string> running_;
  std::map<std::string, std::int64_t> numbers_;  ///< of the open ones
  std::int64_t completed_ = 0;
  std::int64_t failed_ = 0;
  std::int64_t ended_ = 0;
  std::map<std::string, request::JobNews> latest_;  ///< of the open ones
  /// News that could not be written yet: they are tried again with the next ones.
  std::map<std::string, request::JobNews> unwritten_;
  struct Told {
    std::int64_t tenth = 0;
    MonotonicTime at{};
  };
  std::map<std::string, Told> told_;  ///< progress that was logged
};

/// A random UUID of version 4.
std::string new_job_id();
/// Whether a text has the form of one.
bool is_job_id(std::string_view text);

}  // namespace evalcar::http
