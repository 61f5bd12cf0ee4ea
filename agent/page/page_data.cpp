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

Result<std::int64_t> id_of(const state::Reader& reader, const std::string& run) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto found = std::ranges::find(runs, run, &state::Run::name);
  if (found == runs.end()) return make_error(ErrorCode::kNotFound, "no run named " + run);
  return found->id;
}

/// Without the metrics.
Json head_of(const std::string& run, bool live, const std::string& status) {
  return {{"run", run}, {"live", live}, {"status", Json::parse(status, nullptr, false)}};
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
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t id, id_of(reader, run));
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string status,
      publish::status_json(reader, clock, std::optional(id), agent, kMostEnded));
  Json document = head_of(run, live, status);
  EVALCAR_ASSIGN_OR_RETURN(document["metrics"], metrics_of(reader, run));
  return text_of(document);
}

Status LiveDocument::read_metrics(const state::Reader& reader) {
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, reader.data_version());
  if (version == data_version_) return {};
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t numbers, reader.numbers_version(*run_id_));
  if (numbers_ != numbers) {
    EVALCAR_ASSIGN_OR_RETURN(const Json metrics, metrics_of(reader, run_));
    ++readings_;
    metrics_ = text_of(metrics);
    version_ = version_of(metrics_);
    numbers_ = numbers;
  }
  data_version_ = version;
  return {};
}

Result<std::string> LiveDocument::text(const state::Reader& reader, const Clock& clock,
                                       const std::optional<publish::AgentFacts>& agent,
                                       const Wish& wish) {
  if (!run_id_.has_value()) {
    EVALCAR_ASSIGN_OR_RETURN(run_id_, id_of(reader, run_));
  }
  EVALCAR_RETURN_IF_ERROR(rows_.refresh(reader, run_id_, kMostEndedLive));
  EVALCAR_ASSIGN_OR_RETURN(const std::string status,
                           publish::status_json(reader, clock, agent, rows_));
  EVALCAR_RETURN_IF_ERROR(read_metrics(reader));
  Json document = head_of(run_, true, status);
  document["runs"] = wish.runs;
  document["version"] = version_;
  std::string text = text_of(document);
  if (wish.with_metrics) {
    text.back() = ',';
    text += "\"metrics\":" + metrics_ + "}";
  }
  return text;
}

}  // namespace evalcar::page
