#include "agent/cli/results_command.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "agent/cli/exit_code.h"
#include "agent/cli/named_file.h"
#include "agent/cli/plot.h"
#include "agent/cli/step_comparison.h"
#include "agent/page/page_data.h"
#include "agent/page/page_file.h"
#include "agent/publish/table.h"
#include "agent/report/sparkline.h"
#include "store/checkpoint/output_place.h"
#include "store/state/reader.h"

namespace evalcar::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;
using state::MetricRow;

/// Task, metric, filter, kind: what a series over steps is made of.
using SeriesKey = std::tuple<std::string, std::string, std::string, std::string>;
SeriesKey key_of(const MetricRow& row) {
  return {row.task, row.metric, row.filter, row.checkpoint_type};
}

std::string value_cell(const std::optional<double>& value, const std::optional<double>& error,
                       const std::string& source = "") {
  if (!value.has_value()) return "N/A";
  std::string text = publish::format_value(*value);
  if (error.has_value()) {
    text += " ± " + publish::format_value(*error) + (source.empty() ? "" : "*");
  }
  return text;
}

OrderedJson number_json(const std::optional<double>& value) {
  return value.has_value() ? OrderedJson(*value) : OrderedJson(nullptr);
}

/// RFC 4180: quoted where needed, quotes doubled.
std::string csv_cell(const OrderedJson& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

/// A list of objects with the same keys.
std::string to_csv(const OrderedJson& list) {
  std::string text;
  for (const OrderedJson& object : list) {
    if (text.empty()) {
      for (const auto& [key, value] : object.items()) text += (text.empty() ? "" : ",") + key;
      text += "\r\n";
    }
    bool first = true;
    for (const auto& [key, value] : object.items()) {
      text += (first ? "" : ",") + csv_cell(value);
      first = false;
    }
    text += "\r\n";
  }
  return text;
}

std::string dump(const OrderedJson& value) {
  return value.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

OrderedJson row_json(const MetricRow& row) {
  OrderedJson json = OrderedJson::object();
  json["run"] = row.run;
  json["step"] = row.step;
  json["checkpoint_type"] = row.checkpoint_type;
  json["task"] = row.task;
  json["metric"] = row.metric;
  json["value"] = number_json(row.value);
  json["stderr"] = number_json(row.stderr_value);
  json["n"] = row.n;
  json["weights_sha256"] = row.weights_sha256;
  json["finished_at"] = row.finished_at;
  json["filter"] = row.filter;
  json["stderr_source"] = row.stderr_source;
  json["missing"] = row.missing;
  json["higher_is_better"] = row.higher_is_better;
  json["settings_sha256"] = row.settings_sha256;
  json["configured"] = row.configured;
  json["question_sha256"] = row.question;
  return json;
}

/// Of how many documents a line's numbers are; where kinds differ, that of each, in their order.
std::string n_cell(const std::map<std::string, MetricRow>& by_kind,
                   const std::vector<std::string>& kinds) {
  std::vector<std::string> all;
  for (const std::string& kind : kinds) {
    const auto found = by_kind.find(kind);
    if (found != by_kind.end()) all.push_back(std::to_string(found->second.n));
  }
  if (std::ranges::adjacent_find(all, std::ranges::not_equal_to{}) == all.end())
    return all.empty() ? "" : all.front();
  std::string text;
  for (const std::string& n : all) text += (text.empty() ? "" : " / ") + n;
  return text;
}

/// Step × task × metric down, kinds across, each with its error.
std::string rows_table(const std::vector<MetricRow>& rows) {
  std::vector<std::string> kinds;
  for (const char* const kind : {"regular", "ema", "average"}) {
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const MetricRow& row) { return row.checkpoint_type == kind; })) {
      kinds.emplace_back(kind);
    }
  }
  std::map<std::tuple<std::int64_t, std::string, std::string>, std::map<std::string, MetricRow>>
      lines;
  bool ours = false;
  bool others = false;
  for (const MetricRow& row : rows) {
    lines[{row.step, row.task, metric_name(row)}][row.checkpoint_type] = row;
    ours = ours || (!row.stderr_source.empty() && row.stderr_value.has_value());
    others = others || !row.configured;
  }
  std::vector<std::string> header = {"Step", "Task", "Metric", "n"};
  std::vector<bool> right = {true, false, false, true};
  for (const std::string& kind : kinds) {
    header.push_back(kind == "ema" ? "EMA" : kind);
    right.push_back(true);
  }
  std::vector<std::vector<std::string>> cells;
  for (const auto& [key, by_kind] : lines) {
    const auto& [step, task, metric] = key;
    std::vector<std::string> line = {std::to_string(step), task, metric, n_cell(by_kind, kinds)};
    for (const std::string& kind : kinds) {
      const auto found = by_kind.find(kind);
      if (found == by_kind.end()) {
        line.emplace_back();
        continue;
      }
      const MetricRow& row = found->second;
      line.push_back(value_cell(row.value, row.stderr_value, row.stderr_source) +
                     (row.configured ? "" : " †"));
    }
    cells.push_back(std::move(line));
  }
  return publish::markdown_table(header, cells, right) +
         (ours ? "* standard error of evalcar's (bootstrap, or clustered by document); lmms-eval "
                 "gives N/A here\n"
               : "") +
         (others ? "† measured with other settings than those that are configured now, or of "
                   "another task file or other data: not to be compared with the others\n"
                 : "");
}

/// Of those of other settings there may be several series, none of them whole.
bool is_in_series(const MetricRow& row) { return row.value.has_value() && row.configured; }

/// Of each series the first row that reaches its best value.
std::vector<MetricRow> best_of(const std::vector<MetricRow>& rows) {
  std::map<SeriesKey, MetricRow> best;
  for (const MetricRow& row : rows) {  // by step
    if (!is_in_series(row)) continue;
    const auto known = best.find(key_of(row));
    if (known == best.end() || (row.higher_is_better ? *row.value > *known->second.value
                                                     : *row.value < *known->second.value)) {
      best[key_of(row)] = row;
    }
  }
  std::vector<MetricRow> found;
  for (auto& [key, row] : best) found.push_back(std::move(row));
  return found;
}

/// Where each series has come from and stands: only those with several steps have a trend.
std::string trend_table(const std::vector<MetricRow>& rows) {
  std::map<SeriesKey, std::vector<double>> series;
  for (const MetricRow& row : rows) {  // by step
    if (is_in_series(row)) series[key_of(row)].push_back(*row.value);
  }
  std::vector<std::vector<std::string>> cells;
  for (const MetricRow& best : best_of(rows)) {
    const std::vector<double>& values = series[key_of(best)];
    if (values.size() < 2) continue;
    cells.push_back({best.task, metric_name(best), best.checkpoint_type, report::sparkline(values),
                     publish::format_value(values.back()),
                     publish::format_value(*best.value) + " at step " + std::to_string(best.step)});
  }
  if (cells.empty()) return "";
  return "\n" + publish::markdown_table({"Task", "Metric", "Weights", "Trend", "Latest", "Best"},
                                        cells, {false, false, false, false, true, true});
}

std::string plot_of(const std::vector<MetricRow>& rows, const std::string& title) {
  std::map<std::pair<std::string, std::string>, std::map<std::string, PlotSeries>> panels;
  for (const MetricRow& row : rows) {
    if (!is_in_series(row)) continue;
    PlotSeries& series = panels[{row.task, metric_name(row)}][row.checkpoint_type];
    series.kind = row.checkpoint_type;
    series.points.push_back({row.step, *row.value, row.stderr_value});
  }
  std::vector<PlotPanel> list;
  for (auto& [name, by_kind] : panels) {
    PlotPanel panel{name.first + " · " + name.second, {}};
    for (const char* const kind : {"regular", "ema", "average"}) {
      if (const auto found = by_kind.find(kind); found != by_kind.end()) {
        panel.series.push_back(std::move(found->second));
      }
    }
    list.push_back(std::move(panel));
  }
  return render_svg(title, list);
}

Result<std::string> choose_run(const state::Reader& reader, const std::string& wanted) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  if (runs.empty()) return make_error(ErrorCode::kNotFound, "no run in the database yet");
  if (wanted.empty()) return runs.back().name;
  std::vector<std::string> found;
  for (const state::Run& run : runs) {
    if (run.name == wanted) return run.name;
    if (run.name.starts_with(wanted)) found.push_back(run.name);
  }
  if (found.size() == 1) return found.front();
  std::string message = found.empty() ? "no run named " + wanted : wanted + " fits several runs";
  message += "; there are:";
  for (const state::Run& run : runs) message += " " + run.name;
  return make_error(ErrorCode::kInvalidArgument, message);
}

Result<std::vector<MetricRow>> rows_of(const state::Reader& reader, const std::string& run,
                                       const ResultsOptions& options) {
  state::MetricFilter filter;
  filter.run = run;
  filter.task = options.task;
  filter.checkpoint_type = options.weights;
  EVALCAR_ASSIGN_OR_RETURN(auto rows, reader.metrics(filter));
  if (!options.metric.empty()) {
    std::erase_if(rows, [&](const MetricRow& row) {
      if (row.metric == options.metric || metric_name(row) == options.metric) return false;
      return !options.resolve_alias ||
             options.resolve_alias(row.task, options.metric) != row.metric;
    });
  }
  return rows;
}

int exit_code_of_results(const Error& error) {
  if (error.code == ErrorCode::kInvalidArgument) return kExitUsage;
  return error.code == ErrorCode::kNotFound ? kExitNotReady : kExitFailed;
}

Status check_options(const ResultsOptions& options, const FileSystem& files) {
  if (options.format != "table" && options.format != "json" && options.format != "csv") {
    return make_error(ErrorCode::kInvalidArgument,
                      "--format " + options.format + ": expected table, json or csv");
  }
  for (const std::string& path : {options.plot, options.html}) {
    if (path.empty()) continue;
    EVALCAR_RETURN_IF_ERROR(
        checkpoint::check_output_place(files, path, checkpoint::OutputUse::kReplaced));
  }
  return {};
}

/// What a table of numbers does not show: published evaluations some of whose tasks have none.
Status tell_missing(const state::Reader& reader, const std::string& run,
                    const ResultsOptions& options, std::ostream& err) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto chosen =
      std::find_if(runs.begin(), runs.end(), [&](const auto& r) { return r.name == run; });
  state::EvaluationFilter filter;
  filter.run_id = chosen->id;
  filter.kind = options.weights;
  filter.states = {state::EvaluationState::kPublished};
  EVALCAR_ASSIGN_OR_RETURN(const auto evaluations, reader.evaluations(filter));
  for (const state::Evaluation& row : evaluations) {
    if (row.reason.empty()) continue;
    err << "step " << row.step << " " << row.kind << ": " << row.reason << "\n";
  }
  return {};
}

/// Prints what matches and gives how much that is.
Result<std::size_t> print_results(const ResultsOptions& options, const std::string& path,
                                  FileSystem& files, const Clock& clock, std::ostream& out,
                                  std::ostream& err) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Reader reader, state::Reader::open(path));
  EVALCAR_ASSIGN_OR_RETURN(const std::string run, choose_run(reader, options.run));
  EVALCAR_ASSIGN_OR_RETURN(std::vector<MetricRow> rows, rows_of(reader, run, options));
  if (!options.plot.empty() && !rows.empty()) {
    EVALCAR_RETURN_IF_ERROR(write_named_file(files, options.plot, plot_of(rows, run)));
    err << "plot written to " << options.plot << "\n";
  }
  if (!options.html.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string data,
                             page::page_data(reader, clock, run, std::nullopt, false));
    EVALCAR_RETURN_IF_ERROR(write_named_file(files, options.html, page::page_file(data)));
    err << "page written to " << options.html << "\n";
  }
  if (options.best) rows = best_of(rows);
  if (options.format == "table") EVALCAR_RETURN_IF_ERROR(tell_missing(reader, run, options, err));

  OrderedJson list = OrderedJson::array();
  std::string table;
  if (options.compare.has_value()) {
    const auto [step_a, step_b] = *options.compare;
    EVALCAR_ASSIGN_OR_RETURN(list, compare_steps(reader, rows, step_a, step_b));
    table = comparison_tables(list);
    for (const std::string& name : not_comparable(rows, step_a, step_b)) {
      err << name
          << ": the two steps were measured with other settings, or of another task file or other "
             "data: not compared\n";
    }
    if (options.format == "csv") drop_lists(list);
  } else {
    for (const MetricRow& row : rows) list.push_back(row_json(row));
    table = rows_table(rows) + (options.best ? "" : trend_table(rows));
  }
  if (list.empty()) {
    return make_error(ErrorCode::kNotFound,
                      "no results of " + run + " match (yet); see `evalcar status`");
  }
  out << (options.format == "json" ? dump(list) : options.format == "csv" ? to_csv(list) : table);
  return list.size();
}

}  // namespace

int run_results(const ResultsOptions& options, FileSystem& files, const Clock& clock,
                std::ostream& out, std::ostream& err) {
  const auto printed = [&]() -> Result<std::size_t> {
    EVALCAR_RETURN_IF_ERROR(check_options(options, files));
    EVALCAR_ASSIGN_OR_RETURN(const std::string path, choose_database(files, options.database));
    return print_results(options, path, files, clock, out, err);
  }();
  if (printed.has_value()) return 0;
  // One document in any case, also where there is nothing yet.
  const bool nothing = printed.error().code == ErrorCode::kNotFound;
  if (nothing && options.format == "json") out << dump(OrderedJson::array());
  err << "evalcar results: " << printed.error().message << "\n";
  return exit_code_of_results(printed.error());
}

}  // namespace evalcar::cli
