#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "store/state/store.h"

namespace evalcar::cli {
namespace {

/// Returns how many evaluations wait again.
Result<int> retry(state::Store& store, std::int64_t step) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store.read().evaluations({.step = step}));
  int count = 0;
  for (const state::Evaluation& row : rows) {
    const bool ended = state::is_end_state(row.state) &&
                       row.state != state::EvaluationState::kPublished &&
                       row.state != state::EvaluationState::kSuperseded;
    if (!ended && row.state != state::EvaluationState::kFailed) continue;
    EVALCAR_RETURN_IF_ERROR(store.transition(row.id, state::EvaluationState::kComplete, "retry"));
    ++count;
  }
  return count;
}

}  // namespace

int run_retry(const DatabaseChoice& database, std::int64_t step, FileSystem& files,
              std::ostream& out, std::ostream& err) {
  const auto complain = [&err](const Error& error, int code) {
    err << "evalcar retry: " << error.message << '\n';
    return code;
  };
  const auto path = choose_database(files, database);
  if (!path.has_value()) {
    const bool none = path.error().code == ErrorCode::kNotFound;
    return complain(path.error(), none ? kExitNotReady : kExitUsage);
  }
  const SystemClock clock;
  const auto store = state::Store::open(files, clock, *path);
  if (!store.has_value()) return complain(store.error(), kExitFailed);
  const auto count = retry(**store, step);
  if (!count.has_value()) return complain(count.error(), kExitFailed);
  out << *count << " evaluations of step " << step << " are tried again at the next start\n";
  return *count == 0 ? kExitNotReady : kExitDone;
}

}  // namespace evalcar::cli
