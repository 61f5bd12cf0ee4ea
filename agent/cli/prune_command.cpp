#include "agent/cli/ask_agent.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "agent/config/units.h"
#include "agent/request/prune.h"

namespace evalcar::cli {

int run_prune(const DatabaseChoice& database, const PruneRules& rules, FileSystem& files,
              std::ostream& out, std::ostream& err) {
  request::Prune prune{rules.keep, std::nullopt, rules.dry_run};
  if (!rules.older_than.empty()) {
    const auto age = config::parse_duration(rules.older_than);
    if (!age.has_value()) {
      err << "evalcar prune: --older-than: " << age.error().message << '\n';
      return kExitUsage;
    }
    prune.older_than = std::chrono::duration_cast<std::chrono::seconds>(*age);
  }
  if (!prune.keep.has_value() && !prune.older_than.has_value()) {
    err << "evalcar prune: say what may go: --keep N (the newest N steps stay), --older-than 30d, "
           "or both\n";
    return kExitUsage;
  }
  const SystemClock clock;
  const auto here = [&](state::Store& store) {
    return request::prune_runs(files, clock, store, std::nullopt, prune);
  };
  return run_request("prune", database, prune, here, files, clock, out, err);
}

}  // namespace evalcar::cli
