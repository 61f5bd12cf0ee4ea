#include "agent/page/page_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "store/base/hash.h"

namespace evalcar::page {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostEnded = 300;
constexpr std::size_t kMostEndedLive = 50;  ///< it is told every few seconds

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
          {"higher_is_better", row.higher_is_better},
          {"evaluation", row.evaluation_id}};
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Another one for another text.
std::string version_of(const std::string& text) {
  return std::to_string(xxh3_64(std::as_bytes(std::span(text))));
}

/// Without the metrics.
Result<Json> head_of(const state::Reader& reader, const Clock& clock, const std::string& run,
                     const std::optional<publish::AgentFacts>& agent, bool live,
                     std::size_t most_ended) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const state::Run& r) { return r.name == run; });
  if (found == runs.end()) return make_error(ErrorCode::kNotFound, "no run named " + run);
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string status,
      publish::status_json(reader, clock, std::optional(found->id), agent, most_ended));
  return Json({{"run", run}, {"live", live}, {"status", Json::parse(status, nullptr, false)}});
}

Result<Json> metrics_of(const state::Reader& reader, const std::string& run) {
  Json metrics = Json::array();
  state::MetricFilter filter;
  filter.run = run;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_metric(
      filter, [&](const state::MetricRow& row) { metrics.push_back(row_json(row)); }));
  return metrics;
}

}  // namespace

Result<std::string> page_data(const state::Reader& reader, const Clock& clock,
                              const std::string& run,
                              const std::optional<publish::AgentFacts>& agent, bool live) {
  EVALCAR_ASSIGN_OR_RETURN(Json document, head_of(reader, clock, run, agent, live, kMostEnded));
  EVALCAR_ASSIGN_OR_RETURN(document["metrics"], metrics_of(reader, run));
  return text_of(document);
}

Result<std::string> live_page_data(const state::Reader& reader, const Clock& clock,
                                   const std::string& run,
                                   const std::optional<publish::AgentFacts>& agent,
                                   const LivePart& part) {
  EVALCAR_ASSIGN_OR_RETURN(Json document, head_of(reader, clock, run, agent, true, kMostEndedLive));
  EVALCAR_ASSIGN_OR_RETURN(Json metrics, metrics_of(reader, run));
  document["runs"] = part.runs;
  document["version"] = version_of(text_of(metrics));
  if (part.with_metrics) document["metrics"] = std::move(metrics);
  return text_of(document);
}

}  // namespace evalcar::page
