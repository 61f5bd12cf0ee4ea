#include "agent/publish/metrics_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/base/hash.h"

namespace evalcar::publish {

using Json = nlohmann::ordered_json;

std::string_view key_prefix(std::string_view kind) {
  if (kind == "ema") return "eval_ema";
  if (kind == "average") return "eval_avg";
  return "eval";
}

std::string metric_key(std::string_view kind, const std::string& task,
                       const protocol::Metric& metric) {
  std::string key = std::string(key_prefix(kind)) + "/" + task + "/" + metric.name;
  if (metric.filter != "none" && !metric.filter.empty()) key += "," + metric.filter;
  return key;
}

std::string evaluation_key(const state::Evaluation& evaluation,
                           const protocol::EvaluationResult& result) {
  std::vector<std::string> tasks = evaluation.settings.tasks;
  std::sort(tasks.begin(), tasks.end());
  std::string text = evaluation.run + "\n" + std::to_string(evaluation.step) + "\n" +
                     evaluation.kind + "\n" + evaluation.weights_sha256 + "\n" +
                     evaluation.settings_sha256 + "\n";
  for (const std::string& task : tasks) text += task + "\n";
  std::vector<std::string> outcomes;
  for (const protocol::TaskResult& task : result.tasks) {
    if (!task.error.empty()) {
      outcomes.push_back("failed " + task.task);
    } else if (!task.fingerprint.empty()) {  // empty: a row of before schema version 4
      outcomes.push_back("measured " + task.task + " " + task.fingerprint);
    }
  }
  std::sort(outcomes.begin(), outcomes.end());
  for (const std::string& outcome : outcomes) text += outcome + "\n";
  return sha256_hex(text).substr(0, 16);
}

namespace {

/// The metric under its own name and, if wanted, under its aliases.
std::vector<std::string> keys_of(std::string_view kind, const std::string& task,
                                 const protocol::Metric& metric, const Aliases& aliases) {
  std::vector<std::string> keys = {metric_key(kind, task, metric)};
  if (!aliases) return keys;
  for (const std::string& name : aliases(task, metric.name)) {
    protocol::Metric renamed = metric;
    renamed.name = name;
    keys.push_back(metric_key(kind, task, renamed));
  }
  return keys;
}

}  // namespace

std::vector<std::string> flags_of(const protocol::TaskResult& task) {
  std::vector<std::string> flags;
  const Json notes = Json::parse(task.notes, nullptr, false);
  const auto found = notes.is_object() ? notes.find("flags") : notes.end();
  if (!notes.is_object() || found == notes.end() || !found->is_array()) return flags;
  for (const Json& flag : *found) {
    if (flag.is_string()) flags.push_back(flag.get<std::string>());
  }
  return flags;
}

std::map<std::string, double> metric_values(std::string_view kind,
                                            const protocol::EvaluationResult& result,
                                            const Aliases& aliases) {
  std::map<std::string, double> values;
  for (const protocol::TaskResult& task : result.tasks) {
    for (const protocol::Metric& metric : task.metrics) {
      if (!metric.value.has_value()) continue;
      for (const std::string& key : keys_of(kind, task.task, metric, aliases)) {
        values[key] = *metric.value;
        if (metric.stderr_value.has_value()) values[key + "_stderr"] = *metric.stderr_value;
      }
    }
  }
  return values;
}

std::string metrics_line(const state::Evaluation& evaluation,
                         const protocol::EvaluationResult& result, const LineFacts& facts,
                         const Aliases& aliases) {
  Json line = Json::object();
  line["seq"] = facts.seq;
  line["run"] = evaluation.run;
  line["global_step"] = evaluation.step;
  line["checkpoint"] = evaluation.checkpoint;
  line["checkpoint_type"] = evaluation.kind;
  line["weights_sha256"] = result.weights_sha256;
  line["final"] = true;
  line["metrics"] = Json::object();
  for (const auto& [key, value] : metric_values(evaluation.kind, result, aliases)) {
    line["metrics"][key] = value;
  }
  std::int64_t samples = 0;
  Json missing = Json::object();
  Json sources = Json::object();
  Json flags = Json::object();
  for (const protocol::TaskResult& task : result.tasks) {
    samples += task.n;
    if (const auto doubts = flags_of(task); !doubts.empty()) {
      flags[std::string(key_prefix(evaluation.kind)) + "/" + task.task] = doubts;
    }
    if (!task.error.empty()) {
      missing[std::string(key_prefix(evaluation.kind)) + "/" + task.task] = task.error;
    }
    for (const protocol::Metric& metric : task.metrics) {
      const std::string key = metric_key(evaluation.kind, task.task, metric);
      if (!metric.value.has_value()) {
        missing[key] = metric.missing;
      } else if (!metric.stderr_source.empty() && metric.stderr_value.has_value()) {
        sources[key + "_stderr"] = metric.stderr_source;
      }
    }
  }
  line["samples"] = samples;
  line["seconds"] = result.seconds;
  line["lag_steps"] = facts.lag_steps.has_value() ? Json(*facts.lag_steps) : Json(nullptr);
  line["time"] = facts.time;
  if (facts.supersedes.has_value()) line["supersedes"] = *facts.supersedes;
  if (!missing.empty()) line["missing"] = std::move(missing);
  if (!sources.empty()) line["stderr_source"] = std::move(sources);
  if (!flags.empty()) line["flags"] = std::move(flags);
  line["results"] = facts.results_file;
  line["evaluation"] = evaluation_key(evaluation, result);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace evalcar::publish
