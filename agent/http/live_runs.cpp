#include "agent/http/live_runs.h"

#include <utility>

#include "agent/publish/prometheus.h"

namespace evalcar::http {

Result<const state::Reader*> LiveRuns::reader_of(const std::string& database) {
  const auto known = readers_.find(database);
  if (known != readers_.end()) return &known->second;
  EVALCAR_ASSIGN_OR_RETURN(auto reader, state::Reader::open(database));
  return &readers_.emplace(database, std::move(reader)).first->second;
}

Result<std::string> LiveRuns::prometheus() {
  std::vector<publish::PrometheusSource> sources;
  for (publish::LiveDirectory& directory : board_.directories()) {
    EVALCAR_ASSIGN_OR_RETURN(const state::Reader* reader, reader_of(directory.database));
    sources.push_back({reader, std::move(directory.facts)});
  }
  return publish::prometheus_text(sources, clock_);
}

}  // namespace evalcar::http
