// From answers to a task's result: score every answer, aggregate, write lmms-eval's entries.
#include <algorithm>
#include <cmath>
#include <map>

#include "evaluator/metrics/mme.h"
#include "evaluator/metrics/python_number.h"
#include "evaluator/metrics/python_text.h"
#include "evaluator/metrics/statistics.h"
#include "evaluator/tasks/doubts.h"
#include "evaluator/tasks/likelihood_score.h"
#include "evaluator/tasks/sample_line.h"
#include "evaluator/tasks/scorers.h"
#include "evaluator/tasks/task.h"
#include "evaluator/tasks/task_config.h"

namespace evalcar::tasks {
namespace {

struct Scored {
  std::vector<double> values;
  std::vector<std::string> groups;
  std::vector<std::string> pictures;  ///< of mme alone
  std::vector<std::string> only_for;  ///< as SampleScore's
  std::vector<std::string> clusters;
  std::vector<std::string> metric_names;  ///< what the scorer logs, in its order
  std::int64_t drawn = 0;
  std::int64_t unreadable = 0;
};

Value number_or_na(const std::optional<double>& value) {
  return value ? Value(*value) : Value("N/A");
}

// MMMU's overall accuracy: the mean of the subjects' accuracies weighted by their sizes, to five
// decimals; the same additions in the same order as lmms-eval, subjects by first appearance.
double mmmu_accuracy(const Scored& scored) {
  std::vector<std::string> order;
  std::map<std::string, std::pair<double, double>> of_subject;  // correct, samples
  for (std::size_t i = 0; i < scored.values.size(); ++i) {
    auto [it, is_new] = of_subject.try_emplace(scored.groups[i], 0.0, 0.0);
    if (is_new) order.push_back(scored.groups[i]);
    it->second.first += scored.values[i];
    it->second.second += 1;
  }
  double sum = 0;
  double samples = 0;
  for (const std::string& subject : order) {
    const auto& [correct, count] = of_subject[subject];
    sum += correct / count * count;
    samples += count;
  }
  return metrics::round_to(sum / samples, 5);
}

struct Aggregate {
  Value value;
  Value stderr_value = "N/A";
  Value clt = "N/A";
  Value clustered = "N/A";
  std::string missing;                          ///< why there is no value
  std::vector<std::vector<double>> parts = {};  ///< the value is the sum of their means
};

Aggregate aggregate_mme(const Scored& scored) {
  std::vector<metrics::MmeAnswer> answers;
  for (std::size_t i = 0; i < scored.values.size(); ++i)
    answers.push_back({scored.groups[i], scored.pictures[i], scored.values[i]});
  metrics::MmeScore score = metrics::mme_score(answers);
  Aggregate result;
  result.missing = std::move(score.missing);
  if (!score.value) return result;
  result.value = *score.value;
  result.parts = std::move(score.points);
  // lmms-eval's numbers of the answers' points, 0 or 1, though the score is made of pairs.
  result.clt = number_or_na(metrics::clt_stderr(scored.values));
  return result;
}

Aggregate aggregate(const MetricDefinition& metric, const Scored& scored,
                    const ScoreOptions& options) {
  Aggregate result;
  if (metric.aggregation == "none") return result;
  if (metric.aggregation == "mme") return aggregate_mme(scored);
  if (metric.aggregation == "mmmu") {
    result.value = mmmu_accuracy(scored);
    result.parts = {scored.values};
    return result;
  }
  result.value = metrics::mean(scored.values);
  if (options.bootstrap_iters > 0)
    result.stderr_value = number_or_na(metrics::sample_stderr(scored.values));
  result.clt = number_or_na(metrics::clt_stderr(scored.values));
  if (!scored.clusters.empty())
    result.clustered = number_or_na(metrics::clustered_stderr(scored.values, scored.clusters));
  return result;
}

// The answers that count for one metric.
Scored of_metric(const Scored& scored, const std::string& name) {
  Scored part;
  for (std::size_t i = 0; i < scored.values.size(); ++i) {
    if (!scored.only_for[i].empty() && scored.only_for[i] != name) continue;
    part.values.push_back(scored.values[i]);
    part.groups.push_back(scored.groups[i]);
    part.pictures.push_back(scored.pictures[i]);
    if (!scored.clusters.empty()) part.clusters.push_back(scored.clusters[i]);
  }
  return part;
}

protocol::Metric missing_metric(const MetricDefinition& metric, std::string why) {
  return {
      .name = metric.name, .missing = std::move(why), .higher_is_better = metric.higher_is_better};
}

// This task's entry of "results", and the numbers for the database.
void fill_result(protocol::TaskResult& result, const Definition& definition, const Scored& scored,
                 const ScoreOptions& options) {
  Value entry = Value::object();
  entry["alias"] = definition.file.name;
  for (const std::string& name : scored.metric_names) {
    const auto metric = std::find_if(definition.metrics.begin(), definition.metrics.end(),
                                     [&](const MetricDefinition& m) { return m.name == name; });
    if (metric == definition.metrics.end()) {  // logged but not aggregated
      entry[name + ",none"] = Value::array();
      entry[name + "_stderr,none"] = Value::array();
      continue;
    }
    const Scored counted = of_metric(scored, name);
    Aggregate aggregated = aggregate(*metric, counted, options);
    if (!aggregated.missing.empty()) {
      result.metrics.push_back(missing_metric(*metric, std::move(aggregated.missing)));
      continue;
    }
    entry[name + ",none"] = aggregated.value;
    entry[name + "_stderr,none"] = aggregated.stderr_value;
    entry[name + "_stderr_clt,none"] = aggregated.clt;
    entry[name + "_stderr_clustered,none"] = aggregated.clustered;
    if (!aggregated.value.is_number()) continue;
    protocol::Metric published;
    published.name = name;
    published.value = aggregated.value.get<double>();
    if (!std::isfinite(*published.value)) {
      published.value.reset();
      published.missing = "the aggregate of " + std::to_string(counted.values.size()) +
                          " samples is no finite number";
    }
    published.higher_is_better = metric->higher_is_better;
    if (aggregated.clustered.is_number() && options.bootstrap_iters > 0) {
      published.stderr_value = aggregated.clustered.get<double>();
      published.stderr_source = "clustered";
    } else if (aggregated.stderr_value.is_number()) {
      published.stderr_value = aggregated.stderr_value.get<double>();
    } else if (published.value && metric->aggregation != "mean" && options.bootstrap_iters > 0) {
      published.stderr_value = metrics::bootstrap_stderr_of_sum(
          aggregated.parts, options.bootstrap_iters, static_cast<std::uint64_t>(options.seed));
      if (published.stderr_value) published.stderr_source = "bootstrap";
    }
    result.metrics.push_back(std::move(published));
  }
  for (const MetricDefinition& metric : definition.metrics) {
    const auto& logged = scored.metric_names;
    if (std::find(logged.begin(), logged.end(), metric.name) == logged.end()) {
      result.metrics.push_back(
          missing_metric(metric, "none of the documents that were evaluated counts for it"));
    }
  }
  result.lmms_results = python_json(entry);
}

Value notes_of(const Definition& definition, std::span<const Response> responses,
               const Scored& scored, const ScoreOptions& options) {
  Value notes = Value::object();
  notes["compat"] = options.compat;
  if (!options.asked_as.empty()) notes["asked_as"] = options.asked_as;
  const auto doubts = doubts_about(responses, {.cut_off = options.cut_off,
                                               .max_new_tokens = options.max_new_tokens,
                                               .unreadable = scored.unreadable});
  if (!doubts.empty()) notes["flags"] = doubts;
  if (options.narrowed) notes["narrowed"] = true;
  if (options.truncated_pictures > 0) notes["truncated_pictures"] = options.truncated_pictures;
  if (options.draft_tokens > 0) {
    notes["draft_tokens"] = options.draft_tokens;
    notes["draft_tokens_taken"] = options.draft_tokens_taken;
  }
  if (options.num_fewshot > 0 && options.compat != "strict" && definition.fewshot &&
      definition.fewshot->sampler == "default") {
    notes["fewshot_note"] =
        "as lmms-eval's chat wrappers do it, the model was shown other examples than those in the "
        "samples' \"input\": they are drawn once for the log and again for the model (compat = "
        "\"strict\" shows what is logged)";
  }
  if (definition.scorer.name != "mmmu" && definition.scorer.name != "mme") return notes;
  if (definition.scorer.name == "mmmu") notes["random_draws"] = scored.drawn;
  if (scored.drawn > 0) {
    notes["random_draws_note"] =
        options.compat == "strict" ? "no option could be read in that many answers: counted as "
                                     "misses (lmms-eval draws a letter at random)"
                                   : "no option could be read in that many answers: a letter was "
                                     "drawn as Python's random.choice draws it, seed " +
                                         std::to_string(options.seed) +
                                         ", in document order (compat = \"strict\" counts misses)";
  }
  notes["stderr_note"] = "lmms-eval gives N/A; ours is a bootstrap of " +
                         std::to_string(options.bootstrap_iters) + " draws" +
                         (definition.scorer.name == "mme" ? " of pairs within their category" : "");
  return notes;
}

}  // namespace

Result<Scores> score(const Task& task, std::span<const Response> responses,
                     std::span<const std::string> inputs, const ScoreOptions& options,
                     PythonRandom& random) {
  if (options.compat != "lmms-eval" && options.compat != "strict") {
    return make_error(ErrorCode::kInvalidArgument,
                      "compat is \"" + options.compat + "\", expected \"lmms-eval\" or \"strict\"");
  }
  const std::string& name = task.file().name;
  if (responses.empty())
    return make_error(ErrorCode::kInvalidArgument, name + ": no answers to score");
  if (inputs.size() != responses.size())
    return make_error(ErrorCode::kInternal, name + ": inputs and answers differ in number");
  EVALCAR_ASSIGN_OR_RETURN(const Definition definition, definition_of(task.file()));

  if (task.file().request.kind != RequestKind::kGenerate)
    return score_likelihoods(definition, task, responses, inputs, options);

  Scores scores;
  Scored scored;
  const Value config = task_config(definition, options);
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const Response& response = responses[i];
    const std::string place = name + ": document " + std::to_string(response.doc_id);
    if (options.stop.stop_requested())
      return make_error(ErrorCode::kCancelled, name + ": stopped while scoring");
    if (options.advanced) options.advanced();
    EVALCAR_ASSIGN_OR_RETURN(const std::string text, task.document_json(response.doc_id));
    EVALCAR_ASSIGN_OR_RETURN(const Value document, parse_json(text));
    SampleLine line;
    line.doc_id = response.doc_id;
    line.target = definition.target_text
                      ? *definition.target_text
                      : python_str(document.value(definition.target_column, Value()));
    line.response = metrics::encode_utf8(metrics::decode_utf8(response.text));
    const std::string filtered = metrics::strip_reasoning_tags(response.text);
    line.filtered = filtered;
    line.token_counts = Value::array({Value{{"output_tokens", response.output_tokens}}});
    line.input = inputs[i];
    auto one = score_answer(definition, document, metrics::strip_utf8(filtered),
                            options.compat == "strict", random);
    if (!one) return with_context(one.error(), place);
    line.metrics = std::move(one->metrics);
    scored.values.push_back(one->value);
    scored.groups.push_back(one->group);
    scored.pictures.push_back(one->picture);
    scored.only_for.push_back(one->only_for);
    scored.drawn += one->drawn ? 1 : 0;
    scored.unreadable += one->unreadable ? 1 : 0;
    if (!definition.cluster_column.empty())
      scored.clusters.push_back(python_str(document.value(definition.cluster_column, Value())));
    for (const auto& [metric, value] : line.metrics.items()) {
      if (std::find(scored.metric_names.begin(), scored.metric_names.end(), metric) ==
          scored.metric_names.end()) {
        scored.metric_names.push_back(metric);
      }
    }
    const Value arguments = {line.input, config["generation_kwargs"], name, definition.file.split};
    scores.lines.push_back(format_sample_line(line, document, arguments));
    scores.values.push_back(one->value);
  }

  scores.values_count_for = scored.only_for;
  scores.errors_are_of_pairs = definition.scorer.name == "mme";
  protocol::TaskResult& result = scores.result;
  result.task = name;
  result.version = definition.file.version;
  result.alias = name;
  result.num_fewshot = options.num_fewshot;
  result.n = static_cast<std::int64_t>(responses.size());
  result.n_original = task.size();
  fill_result(result, definition, scored, options);
  result.lmms_config = python_json(config);
  result.notes = python_json(notes_of(definition, responses, scored, options));
  return scores;
}

}  // namespace evalcar::tasks
