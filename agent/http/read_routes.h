// The routes for people and for Prometheus. All of them ask databases, so a worker answers them:
// the server's own thread only reads what they ask for.
#pragma once

#include "agent/http/live_runs.h"
#include "agent/http/message.h"
#include "agent/http/worker.h"

namespace evalcar::http {

/// Not thread-safe: the server's thread.
class ReadRoutes {
 public:
  /// Both must outlive it; nobody else may use `runs` but work that `worker` does.
  ReadRoutes(Worker& worker, LiveRuns& runs) : worker_(worker), runs_(runs) {}

  /// False: none of these paths; nothing was answered.
  bool handle(const Request& request, const Respond& respond);

 private:
  Worker& worker_;
  LiveRuns& runs_;
};

}  // namespace evalcar::http
