#include "agent/publish/evaluation_events.h"

#include <nlohmann/json.hpp>

#include "agent/publish/table.h"
#include "agent/publish/utc.h"

namespace evalcar::publish {
namespace {

using OrderedJson = nlohmann::ordered_json;

double seconds_since_epoch(WallTime time) {
  return static_cast<double>(time.time_since_epoch().count()) / 1e6;
}

/// Where a line completes an earlier one of the same weights, the numbers of that have an event.
Status drop_published(const MetricsLog& log, const std::string& line,
                      std::map<std::string, double>& values) {
  const OrderedJson json = OrderedJson::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("supersedes")) return {};
  if (!json["supersedes"].is_number_integer()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const auto earlier,
                           log.line_with_seq(json["supersedes"].get<std::int64_t>()));
  if (is_interim_line(earlier.value_or(""))) return {};  // interim scores have no event
  const OrderedJson before = OrderedJson::parse(earlier.value_or(""), nullptr, false);
  for (const char* key : {"run", "global_step", "checkpoint_type", "weights_sha256"}) {
    if (!before.is_object() || !before.contains(key) || before[key] != json[key]) return {};
  }
  if (!before.contains("metrics") || !before["metrics"].is_object()) return {};
  for (const auto& [key, value] : before["metrics"].items()) {
    const auto same = values.find(key);
    if (same != values.end() && value.is_number() && value == same->second) values.erase(same);
  }
  return {};
}

}  // namespace

const Aliases& published_aliases(const PublisherOptions& options) {
  static const Aliases kNone;
  return options.publish_aliases ? options.aliases : kNone;
}

bool is_interim_line(const std::string& line) {
  const OrderedJson json = OrderedJson::parse(line, nullptr, false);
  const auto final = json.is_object() ? json.find("final") : json.end();
  return json.is_object() && final != json.end() && *final == false;
}

Result<std::optional<TimedEvent>> event_of(const PublisherOptions& options, const MetricsLog& log,
                                           const state::Evaluation& evaluation,
                                           const protocol::EvaluationResult& result,
                                           const std::string& line) {
  auto values = metric_values(evaluation.kind, result, published_aliases(options));
  EVALCAR_RETURN_IF_ERROR(drop_published(log, line, values));
  if (values.empty()) return std::optional<TimedEvent>();
  const double time = seconds_since_epoch(parse_utc(evaluation.finished_at));
  const std::string tag = std::string(key_prefix(evaluation.kind)) + "/results";
  return std::optional(
      TimedEvent{time, step_event(time, evaluation.step, values, {{tag, results_table(result)}})});
}

}  // namespace evalcar::publish
