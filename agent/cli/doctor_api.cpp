// The HTTP API as it is configured: would it begin, and who may ask it?
#include "agent/cli/doctor.h"
#include "agent/http/server.h"

namespace evalcar::cli {
namespace {

using Level = Finding::Level;

}  // namespace

Findings check_api(const FileSystem& files, const config::ServerSettings& settings) {
  const auto plan = http::plan_server(files, settings);
  if (!plan.has_value()) return {{"HTTP API", Level::kProblem, plan.error().message}};
  if (!plan->serves()) return {};
  if (plan->endpoints.empty()) {
    return {{"HTTP API", Level::kOk, plan->unix_socket + ": answers this user and root"}};
  }
  if (!plan->rules.token.empty()) {
    return {{"HTTP API", Level::kOk, settings.listen + ": asks for a token"}};
  }
  return {
      {"HTTP API", Level::kWarning,
       settings.listen +
           ": without a token every user of this machine may read scores and samples, have "
           "checkpoints evaluated and merged (merged models fill the disk), and retry, cancel, "
           "pin and unpin",
       "set server.token_file, or server.unix_socket in place of server.listen (it answers this "
       "user and root alone)"}};
}

}  // namespace evalcar::cli
