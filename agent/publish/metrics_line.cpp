#include "agent/publish/metrics_line.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "store/base/hash.h"

namespace evalcar::publish {

using OrderedJson = nlohmann::ordered_json;

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

namespace {

/// What is known of an evaluation before it has a result.
std::string identity_of(const state::Evaluation& evaluation) {
  std::vector<std::string> tasks = evaluation.settings.tasks;
  std::sort(tasks.begin(), tasks.end());
  std::string text = evaluation.run + "\n" + std::to_string(evaluation.step) + "\n" +
                     evaluation.kind + "\n" + evaluation.weights_sha256 + "\n" +
                     evaluation.settings_sha256 + "\n";
  for (const std::string& task : tasks) text += task + "\n";
  return text;
}

/// What every line begins with: which number it is, and of which weights.
OrderedJson line_of(const state::Evaluation& evaluation, const LineFacts& facts,
                    const std::string& weights_sha256) {
  OrderedJson line = OrderedJson::object();
  line["seq"] = facts.seq;
  line["run"] = evaluation.run;
  line["global_step"] = evaluation.step;
  line["checkpoint"] = evaluation.checkpoint;
  line["checkpoint_type"] = evaluation.kind;
  line["weights_sha256"] = weights_sha256;
  line["settings_sha256"] = evaluation.settings_sha256;
  return line;
}

}  // namespace

std::string evaluation_key(const state::Evaluation& evaluation,
                           const protocol::EvaluationResult& result, std::int64_t generation) {
  std::string text = identity_of(evaluation);
  if (generation > 1) text += "generation " + std::to_string(generation) + "\n";
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

std::string interim_key(const state::Evaluation& evaluation, const protocol::Interim& interim) {
  std::string text = identity_of(evaluation);
  if (evaluation.generation > 1) {
    text += "generation " + std::to_string(evaluation.generation) + "\n";
  }
  std::vector<std::string> parts;
  for (const protocol::InterimScore& score : interim.tasks) {
    std::string part =
        "interim " + score.task + " " + score.fingerprint + " " + std::to_string(score.n);
    for (const protocol::Metric& metric : score.metrics) {
      part += " " + metric.name + "," + metric.filter + "=";
      part += metric.value.has_value() ? OrderedJson(*metric.value).dump() : metric.missing;
    }
    parts.push_back(std::move(part));
  }
  std::sort(parts.begin(), parts.end());
  for (const std::string& part : parts) text += part + "\n";
  return sha256_hex(text).substr(0, 16);
}

namespace {

/// Answers that are drawn for once the task is complete, and count as misses until then.
std::int64_t counted_as_misses(const std::string& notes_text) {
  const OrderedJson notes = OrderedJson::parse(notes_text, nullptr, false);
  const auto found = notes.is_object() ? notes.find("counted_as_misses") : notes.end();
  const bool counts = notes.is_object() && found != notes.end() && found->is_number_integer();
  return counts ? found->get<std::int64_t>() : 0;
}

/// Of a normal distribution: 95 of 100 lie within so many standard deviations.
constexpr double kOf95Percent = 1.96;
/// Means of points from 0 to 1 (evaluator/tasks, "scorer").
constexpr std::array<std::string_view, 6> kFractions = {"acc",      "acc_norm",    "anls",
                                                        "contains", "exact_match", "mmmu_acc"};

/// Absent where nothing is known of the spread: that all points are the same so far is no proof
/// that the others are.
std::optional<std::pair<double, double>> interval_of(const protocol::Metric& metric) {
  if (!metric.stderr_value.has_value() || !(*metric.stderr_value > 0)) return std::nullopt;
  const double reach = kOf95Percent * *metric.stderr_value;
  double low = *metric.value - reach;
  double high = *metric.value + reach;
  if (std::find(kFractions.begin(), kFractions.end(), metric.name) != kFractions.end()) {
    low = std::max(low, 0.0);
    high = std::min(high, 1.0);
  }
  return std::pair(low, high);
}

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

namespace {

std::vector<std::string> flags_in(const std::string& notes_text) {
  std::vector<std::string> flags;
  const OrderedJson notes = OrderedJson::parse(notes_text, nullptr, false);
  const auto found = notes.is_object() ? notes.find("flags") : notes.end();
  if (!notes.is_object() || found == notes.end() || !found->is_array()) return flags;
  for (const OrderedJson& flag : *found) {
    if (flag.is_string()) flags.push_back(flag.get<std::string>());
  }
  return flags;
}

}  // namespace

std::vector<std::string> flags_of(const protocol::TaskResult& task) { return flags_in(task.notes); }

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
  OrderedJson line = line_of(evaluation, facts, result.weights_sha256);
  line["final"] = true;
  line["metrics"] = OrderedJson::object();
  for (const auto& [key, value] : metric_values(evaluation.kind, result, aliases)) {
    line["metrics"][key] = value;
  }
  std::int64_t samples = 0;
  OrderedJson missing = OrderedJson::object();
  OrderedJson sources = OrderedJson::object();
  OrderedJson flags = OrderedJson::object();
  OrderedJson questions = OrderedJson::object();
  for (const protocol::TaskResult& task : result.tasks) {
    samples += task.n;
    if (!task.question.empty()) questions[task.task] = task.question;
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
  line["lag_steps"] =
      facts.lag_steps.has_value() ? OrderedJson(*facts.lag_steps) : OrderedJson(nullptr);
  line["time"] = facts.time;
  if (facts.supersedes.has_value()) line["supersedes"] = *facts.supersedes;
  if (facts.supersedes_interim.has_value()) line["supersedes_interim"] = *facts.supersedes_interim;
  if (!missing.empty()) line["missing"] = std::move(missing);
  if (!sources.empty()) line["stderr_source"] = std::move(sources);
  if (!flags.empty()) line["flags"] = std::move(flags);
  if (!questions.empty()) line["question_sha256"] = std::move(questions);
  line["results"] = facts.results_file;
  line["evaluation"] = facts.evaluation_key;
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string interim_line(const state::Evaluation& evaluation, const protocol::Interim& interim,
                         const LineFacts& facts, const Aliases& aliases) {
  OrderedJson metrics = OrderedJson::object();
  OrderedJson intervals = OrderedJson::object();
  OrderedJson missing = OrderedJson::object();
  OrderedJson sources = OrderedJson::object();
  OrderedJson flags = OrderedJson::object();
  OrderedJson misses = OrderedJson::object();
  std::int64_t samples = 0;
  std::int64_t documents = 0;
  for (const protocol::InterimScore& score : interim.tasks) {
    samples += score.n;
    documents += score.documents;
    const std::string prefix = std::string(key_prefix(evaluation.kind)) + "/" + score.task;
    if (const auto doubts = flags_in(score.notes); !doubts.empty()) flags[prefix] = doubts;
    if (const std::int64_t counted = counted_as_misses(score.notes); counted > 0) {
      misses[prefix] = counted;
    }
    for (const protocol::Metric& metric : score.metrics) {
      for (const std::string& key : keys_of(evaluation.kind, score.task, metric, aliases)) {
        if (!metric.value.has_value()) {
          missing[key] = metric.missing;
          continue;
        }
        metrics[key] = *metric.value;
        if (!metric.stderr_value.has_value()) continue;
        metrics[key + "_stderr"] = *metric.stderr_value;
        if (const auto interval = interval_of(metric); interval.has_value()) {
          intervals[key] = {interval->first, interval->second};
        }
        if (!metric.stderr_source.empty()) sources[key + "_stderr"] = metric.stderr_source;
      }
    }
  }
  OrderedJson line = line_of(evaluation, facts, interim.weights_sha256);
  line["final"] = false;
  line["fraction"] = interim.fraction;
  line["metrics"] = std::move(metrics);
  line["intervals"] = std::move(intervals);
  line["samples"] = samples;
  line["documents"] = documents;
  line["seconds"] = interim.seconds;
  line["lag_steps"] =
      facts.lag_steps.has_value() ? OrderedJson(*facts.lag_steps) : OrderedJson(nullptr);
  line["time"] = facts.time;
  if (facts.supersedes.has_value()) line["supersedes"] = *facts.supersedes;
  if (!missing.empty()) line["missing"] = std::move(missing);
  if (!sources.empty()) line["stderr_source"] = std::move(sources);
  if (!misses.empty()) line["counted_as_misses"] = std::move(misses);
  if (!flags.empty()) line["flags"] = std::move(flags);
  line["evaluation"] = interim_key(evaluation, interim);
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace evalcar::publish
