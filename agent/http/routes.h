// The routes of lmms-eval's evaluation server (lmms-eval 0.7.3, "Eval as a service"): same paths,
// same JSON, same codes; and, besides them, what read_routes.h and page_routes.h have.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/http/evaluate_request.h"
#include "agent/http/jobs.h"
#include "agent/http/merges.h"
#include "agent/http/message.h"
#include "agent/http/page_routes.h"
#include "agent/http/read_routes.h"
#include "store/base/clock.h"

namespace evalcar::http {

/// What there is to tell, from whoever knows. All of it is called in the server's thread.
struct Sources {
  const Clock& clock;
  /// Sorted names; an error is told with an empty list.
  std::function<Result<std::vector<std::string>>()> tasks;
  std::vector<std::string> models;
  Jobs* jobs = nullptr;      ///< outlives it
  Merges* merges = nullptr;  ///< as that
  EvaluateRules rules;
  ReadRoutes* read = nullptr;  ///< as those; null: no such routes
  PageRoutes* page = nullptr;  ///< as that
  /// What stands in the agent's way (publish::AgentFacts::hindrance); "": nothing. Null: nobody
  /// tells.
  std::function<std::string()> warning = {};
};

/// Answers every request. Not thread-safe.
class Routes {
 public:
  explicit Routes(Sources sources);
  void handle(const Request& request, const Respond& respond);
  /// Requests are read against these from now on.
  void take_up(Sources next) {
    sources_.tasks = std::move(next.tasks);
    sources_.rules = std::move(next.rules);
  }

 private:
  using Route = std::function<Response(const Request&)>;
  Response health() const;
  Response tasks() const;
  Response models() const;
  Response evaluate(const Request& request);
  void merge(const Request& request, const Respond& respond);
  Response job(const Request& request, const std::string& id);

  Sources sources_;
  std::map<std::string, std::map<std::string, Route>> routes_;  ///< path → method
};

/// "2026-11-21T09:00:05.123456": the local time without its zone, as Python's datetime.isoformat()
/// gives it.
std::string naive_local_time(WallTime time);

}  // namespace evalcar::http
