// The page for people at `/`, what it shows, and what it changes.
//
//   GET  /               the page: one file, nothing from outside
//   GET  /page/data      a run: its numbers, how its evaluations stand      ?run&since
//   GET  /page/events    the same without numbers, as server-sent events    ?run
//   GET  /page/samples   of an evaluation       ?run&evaluation&task&metric&filter&offset
//   GET  /page/pictures/<name>   a picture of a sample, small
//   POST /page/retry     {"run", "step"}: as `evalcar retry STEP`
//   POST /page/cancel    {"run", "evaluation"}: as `evalcar cancel ID`
//   POST /page/pin, /page/unpin   {"run", "step"}: as `evalcar pin STEP [--off]`
//   POST /page/backfill  {"run"}: as `evalcar backfill`
#pragma once

#include <functional>
#include <string>

#include "agent/http/live_runs.h"
#include "agent/http/message.h"
#include "agent/http/worker.h"
#include "agent/request/request.h"

namespace evalcar::http {

/// Not thread-safe: the server's thread. Whatever asks a database is answered by the worker, what
/// asks the agent by the asker.
class PageRoutes {
 public:
  struct Parts {
    Worker& worker;
    LiveRuns& runs;  ///< used by work of the worker alone, but for what is thread-safe of it
    /// What waits for the agent's loop is done here: it may take seconds, and nobody who only wants
    /// to read waits for it.
    Worker& asker;
    /// Asks the agent that holds this database; called in the asker's thread, where it may wait.
    std::function<Result<request::Answer>(const std::string& database, const request::Request&)>
        ask_agent;
    page::SamplePictures pictures;  ///< read by the worker
  };
  /// All of it outlives this.
  explicit PageRoutes(Parts parts) : parts_(std::move(parts)) {}

  /// False: none of these paths; nothing was answered.
  bool handle(const Request& request, const Respond& respond);

 private:
  void data(const Request& request, const Respond& respond);
  void events(const Request& request, const Respond& respond);
  void samples(const Request& request, const Respond& respond);
  void picture(const Request& request, const Respond& respond);
  void change(const Request& request, const Respond& respond);
  static void later(Worker& worker, const Respond& respond, std::function<Response()> make);

  Parts parts_;
};

/// One server-sent event with this JSON, which has no line breaks.
std::string event_text(const std::string& json);

}  // namespace evalcar::http
