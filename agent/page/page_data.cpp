#include "agent/page/page_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace evalcar::page {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostEnded = 300;

Json optional_json(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json row_json(const state::MetricRow& row) {
  return {{"step", row.step},
          {"checkpoint_type", row.checkpoint_type},
          {"task", row.task},
          {"metric", row.metric},
          {"filter", row.filter},
          {"value", optional_json(row.value)},
          {"stderr", optional_json(row.stderr_value)},
          {"n", row.n},
          {"missing", row.missing},
          {"higher_is_better", row.higher_is_better}};
}

}  // namespace

Result<std::string> page_data(const state::Reader& reader, const Clock& clock,
                              const std::string& run,
                              const std::optional<publish::AgentFacts>& agent, bool live) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const state::Run& r) { return r.name == run; });
  if (found == runs.end()) return make_error(ErrorCode::kNotFound, "no run named " + run);
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string status,
      publish::status_json(reader, clock, std::optional(found->id), agent, kMostEnded));
  Json document = {{"run", run}, {"live", live}, {"status", Json::parse(status, nullptr, false)}};
  document["metrics"] = Json::array();
  state::MetricFilter filter;
  filter.run = run;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_metric(
      filter, [&](const state::MetricRow& row) { document["metrics"].push_back(row_json(row)); }));
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace evalcar::page
