#include "agent/cli/ask_agent.h"
#include "agent/cli/small_commands.h"
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

}  // namespace evalcar::cli
