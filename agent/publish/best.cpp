#include "agent/publish/best.h"

#include <algorithm>
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

/// A number of metric_for_best_model.
struct Candidate {
  double value = 0;
  std::int64_t evaluation_id = 0;
  std::string kind;
};

/// All of a run, best first; of equals the first to reach the value. `greater_is_better` is set if
/// there is any.
Result<std::vector<Candidate>> ranked(const state::Reader& reader, const PublisherOptions& options,
                                      std::int64_t run_id, bool& greater_is_better) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto run = std::find_if(runs.begin(), runs.end(),
                                [run_id](const state::Run& each) { return each.id == run_id; });
  if (run == runs.end()) {
    return make_error(ErrorCode::kNotFound, "no run " + std::to_string(run_id));
  }
  std::vector<Candidate> found;
  state::MetricFilter filter;
  filter.run = run->name;
  EVALCAR_RETURN_IF_ERROR(reader.for_each_metric(filter, [&](const state::MetricRow& row) {
    const bool counts =
        row.value.has_value() && is_named(options.metric_for_best_model, row, options.aliases);
    if (!counts) return;
    greater_is_better = options.greater_is_better.value_or(row.higher_is_better);
    found.push_back({*row.value, row.evaluation_id, row.checkpoint_type});
  }));
  std::stable_sort(found.begin(), found.end(),  // they came by step
                   [greater_is_better](const Candidate& a, const Candidate& b) {
                     return greater_is_better ? a.value > b.value : a.value < b.value;
                   });
  return found;
}

}  // namespace

Result<std::vector<std::int64_t>> best_evaluations(const state::Reader& reader,
                                                   const PublisherOptions& options,
                                                   std::int64_t run_id, const std::string& kind,
                                                   std::size_t count) {
  bool greater = true;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, ranked(reader, options, run_id, greater));
  std::vector<std::int64_t> found;
  for (const Candidate& candidate : all) {
    if (found.size() == count) break;
    if (candidate.kind == kind) found.push_back(candidate.evaluation_id);
  }
  return found;
}

Result<std::optional<std::int64_t>> best_evaluation(const state::Reader& reader,
                                                    const PublisherOptions& options,
                                                    std::int64_t run_id, const std::string& kind) {
  EVALCAR_ASSIGN_OR_RETURN(const auto best, best_evaluations(reader, options, run_id, kind, 1));
  if (best.empty()) return std::optional<std::int64_t>{};
  return std::optional<std::int64_t>{best.front()};
}

Status write_best(FileSystem& files, const state::Reader& reader, const PublisherOptions& options,
                  std::int64_t run_id) {
  bool greater = true;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, ranked(reader, options, run_id, greater));
  if (all.empty()) return {};
  Json root = Json::object();
  root["metric"] = options.metric_for_best_model;
  root["greater_is_better"] = greater;
  root["best"] = Json::object();
  for (const char* const kind : {"regular", "ema", "average"}) {
    const auto found =
        std::find_if(all.begin(), all.end(), [kind](const Candidate& c) { return c.kind == kind; });
    if (found == all.end()) continue;
    EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader.evaluation(found->evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN(const std::string kept,
                             reader.kept_path(evaluation.checkpoint_id, kind));
    Json entry = Json::object();
    entry["step"] = evaluation.step;
    entry["value"] = found->value;
    entry["checkpoint"] = evaluation.checkpoint;
    entry["kept_path"] = kept.empty() ? Json(nullptr) : Json(kept);
    entry["weights_sha256"] = evaluation.weights_sha256;
    root["best"][kind] = std::move(entry);
  }
  const std::string text = root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string path = join_path(options.dir, "best.json");
  if (read_file(files, path, std::uint64_t{1} << 20U).value_or("") == text) return {};
  EVALCAR_RETURN_IF_ERROR(make_directories(files, options.dir));
  return write_file_atomically(files, path, text);
}

}  // namespace evalcar::publish
