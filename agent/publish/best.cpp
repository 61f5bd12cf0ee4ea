#include "agent/publish/best.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "agent/publish/metrics_line.h"

namespace evalcar::publish {
namespace {

using OrderedJson = nlohmann::ordered_json;
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
  bool configured = true;
  std::string series;  ///< "" of today's configuration; else the settings and the question
};

/// Calls take(row) for each number of metric_for_best_model that a run has, by step.
template <typename Take>
Status each_number(const state::Reader& reader, const PublisherOptions& options,
                   std::int64_t run_id, const Take& take) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto run = std::find_if(runs.begin(), runs.end(),
                                [run_id](const state::Run& each) { return each.id == run_id; });
  if (run == runs.end()) {
    return make_error(ErrorCode::kNotFound, "no run " + std::to_string(run_id));
  }
  state::MetricFilter filter;
  filter.run = run->name;
  return reader.for_each_metric(filter, [&](const state::MetricRow& row) {
    const bool counts =
        row.value.has_value() && is_named(options.metric_for_best_model, row, options.aliases);
    if (counts) take(row);
  });
}

/// All of a run, best first; of equals the first to reach the value. Numbers of two settings or
/// questions are never compared: those of today's configuration come first, then those of each
/// other one, the latest of these first. `greater_is_better` is set if there is any.
Result<std::vector<Candidate>> ranked(const state::Reader& reader, const PublisherOptions& options,
                                      std::int64_t run_id, bool& greater_is_better) {
  std::vector<Candidate> found;
  std::map<std::string, std::string> latest;  // of each series: when a number was made
  EVALCAR_RETURN_IF_ERROR(each_number(reader, options, run_id, [&](const state::MetricRow& row) {
    greater_is_better = options.greater_is_better.value_or(row.higher_is_better);
    const std::string series = row.configured ? "" : row.settings_sha256 + " " + row.question;
    found.push_back({*row.value, row.evaluation_id, row.checkpoint_type, row.configured, series});
    std::string& time = latest[series];
    time = std::max(time, row.finished_at);
  }));
  const auto place_of = [&latest](const Candidate& candidate) {
    return std::tie(candidate.configured, latest[candidate.series], candidate.series);
  };
  std::stable_sort(found.begin(), found.end(),  // they came by step
                   [&](const Candidate& a, const Candidate& b) {
                     const auto of_a = place_of(a);
                     const auto of_b = place_of(b);
                     if (of_a != of_b) return of_a > of_b;
                     return greater_is_better ? a.value > b.value : a.value < b.value;
                   });
  return found;
}

/// Whether the folder of its name holds other weights than those that were measured: it has been
/// written anew since, with whatever, or it was never theirs (snapshots).
Result<bool> is_of_others(const state::Reader& reader, std::int64_t run_id,
                          const Evaluation& evaluation) {
  if (state::lies_elsewhere(evaluation.checkpoint_path, evaluation.checkpoint)) return true;
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, reader.checkpoints(run_id));
  return std::ranges::any_of(checkpoints, [&evaluation](const state::Checkpoint& other) {
    return other.name == evaluation.checkpoint && other.generation > evaluation.generation &&
           !state::lies_elsewhere(other.path, other.name);
  });
}

/// nullptr while no number of this kind is of today's configuration.
const Candidate* best_of(const std::vector<Candidate>& ranked, std::string_view kind) {
  const auto found = std::find_if(ranked.begin(), ranked.end(), [kind](const Candidate& one) {
    return one.configured && one.kind == kind;
  });
  return found == ranked.end() ? nullptr : &*found;
}

}  // namespace

Result<std::optional<bool>> own_direction(const state::Reader& reader,
                                          const PublisherOptions& options, std::int64_t run_id) {
  std::optional<bool> direction;
  EVALCAR_RETURN_IF_ERROR(
      each_number(reader, options, run_id,
                  [&direction](const state::MetricRow& row) { direction = row.higher_is_better; }));
  return direction;
}

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
  bool greater = true;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, ranked(reader, options, run_id, greater));
  const Candidate* const best = best_of(all, kind);
  return best == nullptr ? std::optional<std::int64_t>{} : std::optional(best->evaluation_id);
}

Status write_best(FileSystem& files, const state::Reader& reader, const PublisherOptions& options,
                  std::int64_t run_id) {
  bool greater = true;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, ranked(reader, options, run_id, greater));
  const std::string path = join_path(options.dir, "best.json");
  const std::string before = read_file(files, path, std::uint64_t{1} << 20U).value_or("");
  const bool any = !all.empty() && all.front().configured;
  if (!any && before.empty()) return {};
  OrderedJson root = OrderedJson::object();
  root["metric"] = options.metric_for_best_model;
  root["greater_is_better"] = all.empty() ? options.greater_is_better.value_or(greater) : greater;
  root["best"] = OrderedJson::object();
  for (const char* const kind : {"regular", "ema", "average"}) {
    const Candidate* const found = best_of(all, kind);
    if (found == nullptr) continue;
    EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader.evaluation(found->evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN(const std::string kept,
                             reader.kept_path(evaluation.checkpoint_id, kind));
    OrderedJson entry = OrderedJson::object();
    entry["step"] = evaluation.step;
    entry["value"] = found->value;
    EVALCAR_ASSIGN_OR_RETURN(const bool other, is_of_others(reader, run_id, evaluation));
    entry["checkpoint"] = other ? OrderedJson(nullptr) : OrderedJson(evaluation.checkpoint);
    entry["kept_path"] = kept.empty() ? OrderedJson(nullptr) : OrderedJson(kept);
    entry["weights_sha256"] = evaluation.weights_sha256;
    root["best"][kind] = std::move(entry);
  }
  const std::string text = root.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  if (before == text) return {};
  EVALCAR_RETURN_IF_ERROR(make_directories(files, options.dir));
  return write_file_atomically(files, path, text);
}

}  // namespace evalcar::publish
