#include "agent/publish/best.h"

#include <map>
#include <nlohmann/json.hpp>

#include "agent/publish/metrics_line.h"

namespace evalcar::publish {
namespace {

using Json = nlohmann::ordered_json;
using state::Evaluation;

/// Whether a metric's row is meant by "eval/<task>/<metric>", under its own name or an alias.
bool is_named(const std::string& wanted, const state::MetricRow& row, const Aliases& aliases) {
  protocol::Metric metric;
  metric.name = row.metric;
  metric.filter = row.filter;
  if (metric_key("regular", row.task, metric) == wanted) return true;
  if (!aliases) return false;
  for (const std::string& name : aliases(row.task, row.metric)) {
    metric.name = name;
    if (metric_key("regular", row.task, metric) == wanted) return true;
  }
  return false;
}

/// The best row of each kind: the first to reach the best value.
std::map<std::string, state::MetricRow> best_rows(const std::vector<state::MetricRow>& rows,
                                                  const PublisherOptions& options,
                                                  bool& greater_is_better) {
  std::map<std::string, state::MetricRow> best;
  for (const state::MetricRow& row : rows) {  // by step
    if (!row.value.has_value() || !is_named(options.metric_for_best_model, row, options.aliases)) {
      continue;
    }
    greater_is_better = options.greater_is_better.value_or(row.higher_is_better);
    const auto known = best.find(row.checkpoint_type);
    const bool better =
        known == best.end() ||
        (greater_is_better ? *row.value > *known->second.value : *row.value < *known->second.value);
    if (better) best[row.checkpoint_type] = row;
  }
  return best;
}

Result<std::vector<state::MetricRow>> rows_of_run(const state::Reader& reader,
                                                  std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  for (const state::Run& run : runs) {
    if (run.id != run_id) continue;
    state::MetricFilter filter;
    filter.run = run.name;
    return reader.metrics(filter);
  }
  return make_error(ErrorCode::kNotFound, "no run " + std::to_string(run_id));
}

}  // namespace

Result<std::optional<std::int64_t>> best_evaluation(const state::Reader& reader,
                                                    const PublisherOptions& options,
                                                    std::int64_t run_id, const std::string& kind) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of_run(reader, run_id));
  bool greater = true;
  const auto best = best_rows(rows, options, greater);
  const auto found = best.find(kind);
  if (found == best.end()) return std::optional<std::int64_t>{};
  return std::optional<std::int64_t>{found->second.evaluation_id};
}

Status write_best(FileSystem& files, const state::Reader& reader, const PublisherOptions& options,
                  std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of_run(reader, run_id));
  bool greater = true;
  const auto best = best_rows(rows, options, greater);
  if (best.empty()) return {};
  Json root = Json::object();
  root["metric"] = options.metric_for_best_model;
  root["greater_is_better"] = greater;
  root["best"] = Json::object();
  for (const char* const kind : {"regular", "ema", "average"}) {
    const auto found = best.find(kind);
    if (found == best.end()) continue;
    EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation,
                             reader.evaluation(found->second.evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN(const std::string kept,
                             reader.kept_path(evaluation.checkpoint_id, kind));
    Json entry = Json::object();
    entry["step"] = evaluation.step;
    entry["value"] = *found->second.value;
    entry["checkpoint"] = evaluation.checkpoint;
    entry["kept_path"] = kept.empty() ? Json(nullptr) : Json(kept);
    entry["weights_sha256"] = found->second.weights_sha256;
    root["best"][kind] = std::move(entry);
  }
  const std::string text = root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string path = join_path(options.dir, "best.json");
  if (read_file(files, path, std::uint64_t{1} << 20U).value_or("") == text) return {};
  EVALCAR_RETURN_IF_ERROR(make_directories(files, options.dir));
  return write_file_atomically(files, path, text);
}

}  // namespace evalcar::publish
