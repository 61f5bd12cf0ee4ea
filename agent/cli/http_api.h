// The HTTP API beside the agent's loop.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "agent/config/settings.h"
#include "agent/http/jobs.h"
#include "agent/http/live_runs.h"
#include "agent/http/page_routes.h"
#include "agent/http/read_routes.h"
#include "agent/http/routes.h"
#include "agent/http/server.h"
#include "agent/request/desk.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/guarded.h"

namespace evalcar::cli {

/// What of the API the loop sees is the desk and the board.
class HttpApi {
 public:
  static constexpr std::size_t kMostQuestions = 64;  ///< that wait for an answer of a database
  static constexpr std::size_t kMostRetries = 16;    ///< that wait for the loop
  /// Serves by the section [server]; null where that names no place to serve at. The jobs are
  /// remembered in `book`. `files` and `clock` must outlive it. To be called with the signals
  /// blocked: its thread must not take them.
  static Result<std::unique_ptr<HttpApi>> start(FileSystem& files, const Clock& clock,
                                                const config::Settings& settings,
                                                const std::string& book);
  ~HttpApi();
  HttpApi(const HttpApi&) = delete;
  HttpApi& operator=(const HttpApi&) = delete;
  request::JobDesk& desk() { return desk_; }
  publish::LiveBoard& board() { return board_; }
  /// Requests are read against another configuration from now on; [server] stays as it was.
  void take_up(const FileSystem& files, const Clock& clock, const config::Settings& settings);

 private:
  HttpApi(FileSystem& files, const Clock& clock);
  Result<request::Answer> ask_loop(FileSystem& files, const Clock& clock,
                                   const std::string& database, const request::Request& asked);
  void tell_pages();
  request::JobDesk desk_;
  publish::LiveBoard board_;
  http::LiveRuns runs_;
  http::ReadRoutes read_{worker_, runs_};
  http::PageRoutes page_;
  std::unique_ptr<http::Jobs> jobs_;
  std::unique_ptr<http::Merges> merges_;
  std::unique_ptr<http::Routes> routes_;
  std::unique_ptr<http::Server> server_;
  std::atomic<bool> told_ = false;  ///< the server's thread will take the news
  /// Whom pages are told through; null once the server ends.
  Guarded<http::Server*> audience_{nullptr};
  std::atomic<bool> telling_ = false;    ///< the worker will tell the pages
  http::Worker worker_{kMostQuestions};  ///< last, as the next: what it does uses all of the above
  http::Worker asker_{kMostRetries};
};

}  // namespace evalcar::cli
