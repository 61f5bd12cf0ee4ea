#include "agent/cli/ask_agent.h"
#include "agent/cli/small_commands.h"
#include "agent/request/cancel.h"
#include "agent/request/retry.h"

namespace evalcar::cli {

int run_retry(const DatabaseChoice& database, std::int64_t step, FileSystem& files,
              std::ostream& out, std::ostream& err) {
  const SystemClock clock;
  const auto here = [step](state::Store& store) {
    return request::retry_step(store, std::nullopt, step, "at the next start");
  };
  return run_request("retry", database, request::Retry{step}, here, files, clock, out, err);
}

int run_backfill(const DatabaseChoice& database, FileSystem& files, std::ostream& out,
                 std::ostream& err) {
  const SystemClock clock;
  const auto here = [](state::Store&) {
    return request::Answer{request::Outcome::kFailed,
                           "no agent runs here; it does that, as it knows what is wanted"};
  };
  return run_request("backfill", database, request::Backfill{}, here, files, clock, out, err);
}

int run_cancel(const DatabaseChoice& database, std::int64_t evaluation, FileSystem& files,
               std::ostream& out, std::ostream& err) {
  const SystemClock clock;
  const auto here = [evaluation](state::Store& store) {
    return request::cancel_evaluation(store, std::nullopt, evaluation);
  };
  return run_request("cancel", database, request::Cancel{evaluation}, here, files, clock, out, err);
}

int run_pin(const DatabaseChoice& database, std::int64_t step, bool off, FileSystem& files,
            std::ostream& out, std::ostream& err) {
  const SystemClock clock;
  const auto here = [](state::Store&) {
    return request::Answer{request::Outcome::kFailed,
                           "no agent runs here; it does that, as it knows the files"};
  };
  return run_request("pin", database, request::Pin{step, off}, here, files, clock, out, err);
}

}  // namespace evalcar::cli
