#include "agent/request/newest_runs.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace evalcar::request {

Result<std::vector<std::int64_t>> newest_runs(const state::Reader& rows) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, rows.runs());
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> newest;  // stem → generation, id
  for (const state::Run& run : runs) {
    auto& known = newest[run.name.substr(0, run.name.rfind('-'))];
    known = std::max(known, {run.generation, run.id});
  }
  std::vector<std::int64_t> ids;
  for (const auto& [stem, run] : newest) ids.push_back(run.second);
  return ids;
}

}  // namespace evalcar::request
