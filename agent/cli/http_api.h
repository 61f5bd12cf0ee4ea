// The HTTP API beside the agent's loop.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "agent/config/settings.h"
#include "agent/http/jobs.h"
#include "agent/http/routes.h"
#include "agent/http/server.h"
#include "agent/request/desk.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::cli {

/// What of the API the loop sees is the desk.
class HttpApi {
 public:
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
  /// Requests are read against another configuration from now on; [server] stays as it was.
  void take_up(const FileSystem& files, const Clock& clock, const config::Settings& settings);

 private:
  HttpApi() = default;
  request::JobDesk desk_;
  std::unique_ptr<http::Jobs> jobs_;
  std::unique_ptr<http::Merges> merges_;
  std::unique_ptr<http::Routes> routes_;
  std::unique_ptr<http::Server> server_;
  std::atomic<bool> told_ = false;  ///< the server's thread will take the news
};

}  // namespace evalcar::cli
