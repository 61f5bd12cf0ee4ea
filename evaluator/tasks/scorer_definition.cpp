#include "evaluator/tasks/scorer_definition.h"

#include <algorithm>
#include <string>
#include <utility>

#include "evaluator/tasks/request_definition.h"

namespace evalcar::tasks {
namespace {

const Names kScorers = {"anls", "contains", "exact_match", "mme", "mmmu", "vqa"};
const Names kAggregations = {"bits_per_byte",
                             "mean",
                             "mme",
                             "mmmu",
                             "none",
                             "perplexity",
                             "token_mean",
                             "token_perplexity",
                             "weighted_perplexity"};

Names metrics_of_scorer(const std::string& scorer) {
  if (scorer == "anls") return {"anls"};
  if (scorer == "vqa") return {"exact_match", "submission"};
  if (scorer == "mme") return {"mme_perception_score", "mme_cognition_score"};
  if (scorer == "mmmu") return {"mmmu_acc"};
  if (scorer == "contains") return {"contains"};
  return {"exact_match"};
}

Names metric_names(const Definition& definition) {
  if (definition.file.request.kind == RequestKind::kGenerate)
    return metrics_of_scorer(definition.scorer.name);
  Names names;
  for (const KnownMetric& metric : metrics_of(definition.file.request.kind))
    names.emplace_back(metric.name);
  return names;
}

// How a metric is put together, and which way is better, where the file does not say.
MetricDefinition usual_metric(const Definition& definition, const std::string& name) {
  for (const KnownMetric& metric : metrics_of(definition.file.request.kind)) {
    if (metric.name == name) return {name, metric.aggregation, metric.higher_is_better, {}};
  }
  const std::string& scorer = definition.scorer.name;
  const bool own = scorer == "mme" || scorer == "mmmu";
  return {name, name == "submission" ? "none" : (own ? scorer : "mean"), true, {}};
}

std::string true_or_false(bool value) { return value ? "true" : "false"; }

// What a metric of this scorer may say beside its name and direction. lmms-eval hands it to the
// metric's function; a task with a function of its own for all metrics (vqa) only logs it.
Names options_of_metric(const std::string& scorer) {
  if (scorer == "contains") return {"ignore_case"};
  if (scorer == "exact_match" || scorer == "vqa")
    return {"ignore_case", "ignore_punctuation", "ignore_numbers"};
  return {};
}

// Takes an option that stands in [[metrics]], as lmms-eval's files have it; where [scorer] says it,
// too, they must agree.
void take_option(TomlReader& reader, const toml::table& root, const toml::table& metric,
                 const std::string& key, bool& option) {
  const auto asked = reader.boolean(metric, key, "[[metrics]]");
  if (!asked.has_value()) return;
  if (root["scorer"][key] && option != *asked) {
    reader.problem(metric.get(key)->source(), quoted(key) + " is " + true_or_false(*asked) +
                                                  " in [[metrics]] and " + true_or_false(option) +
                                                  " in [scorer]: keep one");
  }
  option = *asked;
}

void take_options(TomlReader& reader, const toml::table& root, const toml::table& metric,
                  ScorerDefinition& scorer) {
  take_option(reader, root, metric, "ignore_case", scorer.ignore_case);
  take_option(reader, root, metric, "ignore_punctuation", scorer.ignore_punctuation);
  take_option(reader, root, metric, "ignore_numbers", scorer.ignore_numbers);
}

// `before`: the metrics that the file has above this one.
void check_metric(TomlReader& reader, const toml::table& table, const MetricDefinition& metric,
                  const MetricDefinition& usual, const std::vector<MetricDefinition>& before) {
  if (metric.name != "submission" && metric.aggregation != usual.aggregation) {
    reader.problem(table.source(), "metric " + quoted(metric.name) + " is aggregated by " +
                                       quoted(usual.aggregation));
  }
  if (metric.higher_is_better != usual.higher_is_better) {
    reader.problem(table.get("higher_is_better")->source(),
                   "\"higher_is_better\" in [[metrics]] is " +
                       true_or_false(metric.higher_is_better) + " for " + quoted(metric.name) +
                       ", expected " + true_or_false(usual.higher_is_better) +
                       ": the best checkpoint would be the worst; it may be left out");
  }
  if (std::ranges::find(before, metric.name, &MetricDefinition::name) != before.end()) {
    reader.problem(table.get("name")->source(), "\"name\" in [[metrics]] is " +
                                                    quoted(metric.name) +
                                                    " a second time; expected each metric once");
  }
}

}  // namespace

void read_scorer(TomlReader& reader, const toml::table& root, Definition& out) {
  const bool generates = out.file.request.kind == RequestKind::kGenerate;
  const toml::table* scorer = reader.table(root, "scorer", "the file", generates);
  if (!generates) {
    out.scorer.name = out.file.scorer = kind_name(out.file.request.kind);
    if (scorer != nullptr)
      reader.problem(scorer->source(), "[scorer]: a request of kind " + quoted(out.scorer.name) +
                                           " is scored by its likelihoods; [[metrics]] chooses "
                                           "among " +
                                           list_of(metric_names(out)));
  }
  if (scorer == nullptr || !generates) return;
  out.scorer.name = reader.one_of(*scorer, "name", "[scorer]", true, kScorers);
  out.file.scorer = out.scorer.name;
  Names known = {"name"};
  if (out.scorer.name == "vqa") known = {"name", "answers", "id"};
  if (out.scorer.name == "exact_match")
    known = {"name", "ignore_case", "ignore_punctuation", "ignore_numbers"};
  if (out.scorer.name == "contains") known = {"name", "ignore_case"};
  if (!out.scorer.name.empty()) reader.only(*scorer, "[scorer] of " + out.scorer.name, known);
  if (out.scorer.name == "vqa")
    out.scorer.answers = reader.string(*scorer, "answers", "[scorer]", true);
  out.scorer.id = reader.string(*scorer, "id", "[scorer]", false);
  out.scorer.ignore_case = reader.boolean(*scorer, "ignore_case", "[scorer]").value_or(false);
  out.scorer.ignore_punctuation =
      reader.boolean(*scorer, "ignore_punctuation", "[scorer]").value_or(false);
  out.scorer.ignore_numbers = reader.boolean(*scorer, "ignore_numbers", "[scorer]").value_or(false);
  const bool needs_target = out.scorer.name != "vqa";
  if (needs_target && !out.scorer.name.empty() && out.target_column.empty() && out.target_text) {
    reader.problem(scorer->source(), "scorer " + quoted(out.scorer.name) +
                                         " compares with a column: give [columns] target");
  }
  if ((out.scorer.name == "mmmu") != (out.prompt.builder == "mmmu") && !out.scorer.name.empty()) {
    reader.problem(scorer->source(), "scorer \"mmmu\" and prompt builder \"mmmu\" go together");
  }
}

void read_metrics(TomlReader& reader, const toml::table& root, Definition& out) {
  const Names possible = metric_names(out);
  const toml::node* node = root.get("metrics");
  if (node == nullptr) {
    out.metrics.push_back(usual_metric(out, possible.front()));
    if (out.scorer.name == "mme") out.metrics.push_back(usual_metric(out, possible.back()));
    if (out.file.request.kind == RequestKind::kGenerate) return;
    for (std::size_t i = 1; i < possible.size(); ++i) {
      // How often the right choice is the greedy one is told where it is asked for.
      if (possible[i] != "exact_match") out.metrics.push_back(usual_metric(out, possible[i]));
    }
    return;
  }
  const auto* list = node->as_array();
  if (list == nullptr || list->empty()) {
    reader.wrong_type(*node, "metrics", "the file", "one or more [[metrics]] tables");
    return;
  }
  for (const toml::node& item : *list) {
    const auto* table = item.as_table();
    if (table == nullptr) {
      reader.wrong_type(item, "metrics", "the file", "[[metrics]] tables");
      continue;
    }
    MetricDefinition metric;
    metric.name = reader.one_of(*table, "name", "[[metrics]]", true, possible);
    const MetricDefinition usual = usual_metric(out, metric.name);
    metric.aggregation = reader.one_of(*table, "aggregation", "[[metrics]]", false, kAggregations);
    if (metric.aggregation.empty()) metric.aggregation = usual.aggregation;
    metric.higher_is_better =
        reader.boolean(*table, "higher_is_better", "[[metrics]]").value_or(usual.higher_is_better);
    if (!metric.name.empty()) check_metric(reader, *table, metric, usual, out.metrics);
    const Names own = {"name", "aggregation", "higher_is_better"};
    metric.extra = reader.settings(*table, "[[metrics]]", own);
    Names known = options_of_metric(out.scorer.name);
    known.insert(known.begin(), own.begin(), own.end());
    if (!out.scorer.name.empty()) reader.only(*table, "[[metrics]] of " + out.scorer.name, known);
    if (out.scorer.name != "vqa") take_options(reader, root, *table, out.scorer);
    out.metrics.push_back(std::move(metric));
  }
}

}  // namespace evalcar::tasks
