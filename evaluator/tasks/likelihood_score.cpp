#include "evaluator/tasks/likelihood_score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "evaluator/metrics/mmmu.h"
#include "evaluator/metrics/python_text.h"
#include "evaluator/metrics/statistics.h"
#include "evaluator/tasks/choices.h"
#include "evaluator/tasks/doubts.h"
#include "evaluator/tasks/likelihoods.h"
#include "evaluator/tasks/prompt.h"
#include "evaluator/tasks/sample_line.h"
#include "evaluator/tasks/task_config.h"

namespace evalcar::tasks {
namespace {

// One document's part in a metric: a mean weighs each alike, a ratio by tokens, words or bytes.
struct Part {
  double value = 0;
  double weight = 1;
};

// What one document gives: metric -> its part, and what lm-eval logs for it.
struct Sample {
  std::map<std::string, Part> parts;
  Value logged = Value::object();
  std::string target;
  std::string chosen;  // of multiple_choice: the letter of the likeliest choice

  void add(const std::string& metric, double value, Value log) {
    parts[metric] = {value, 1};
    logged[metric] = std::move(log);
  }
  void add_ratio(const std::string& metric, double log_likelihood, double weight, Value log) {
    parts[metric] = {-log_likelihood, weight};
    logged[metric] = std::move(log);
  }
};

// The first of the largest, as numpy's argmax.
std::size_t argmax(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

Result<Sample> score_choices(const Definition& definition, const Value& document,
                             const std::vector<Likelihood>& likelihoods,
                             const std::string& family) {
  EVALCAR_ASSIGN_OR_RETURN(const auto choices, choices_of(definition, document, family));
  EVALCAR_ASSIGN_OR_RETURN(const auto right, right_choices(definition, document, choices));
  if (choices.size() != likelihoods.size())
    return make_error(ErrorCode::kCorruption, std::to_string(likelihoods.size()) +
                                                  " likelihoods for " +
                                                  std::to_string(choices.size()) + " choices");
  std::vector<double> plain, by_length;
  bool greedy = false;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto characters = static_cast<double>(metrics::decode_utf8(choices[i]).size());
    if (characters == 0) return make_error(ErrorCode::kCorruption, "an empty choice");
    plain.push_back(likelihoods[i].log_likelihood);
    by_length.push_back(likelihoods[i].log_likelihood / characters);
    const bool is_right = std::ranges::find(right, i) != right.end();
    greedy = greedy || (is_right && likelihoods[i].is_greedy);
  }
  const auto hit = [&](std::size_t chosen) {
    return std::ranges::find(right, chosen) == right.end() ? 0.0 : 1.0;
  };
  Sample sample;
  sample.add("acc", hit(argmax(plain)), hit(argmax(plain)));
  sample.add("acc_norm", hit(argmax(by_length)), hit(argmax(by_length)));
  sample.add("exact_match", greedy ? 1 : 0, greedy ? 1 : 0);
  for (const std::size_t i : right)
    sample.target += (sample.target.empty() ? "" : ", ") + std::to_string(i);
  sample.chosen = metrics::option_letter(argmax(plain));
  return sample;
}

Sample score_continuation(const Likelihood& likelihood) {
  Sample sample;
  sample.add("acc", likelihood.is_greedy ? 1 : 0, likelihood.is_greedy ? 1 : 0);
  sample.add_ratio("perplexity", likelihood.log_likelihood, 1, likelihood.log_likelihood);
  return sample;
}

Sample score_conversation(const Likelihood& likelihood) {
  const auto tokens = static_cast<double>(likelihood.tokens);
  const double loss = -likelihood.log_likelihood / tokens;
  Sample sample;
  sample.add_ratio("loss", likelihood.log_likelihood, tokens, loss);
  sample.add_ratio("perplexity", likelihood.log_likelihood, tokens, std::exp(loss));
  return sample;
}

// len(re.split(r"\s+", text))
double count_words(const metrics::Text& text) {
  double words = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (metrics::is_space(text[i]) && (i == 0 || !metrics::is_space(text[i - 1]))) ++words;
  }
  return words;
}

Sample score_text(const Likelihood& likelihood, const std::string& text) {
  const double words = count_words(metrics::decode_utf8(text));
  const auto bytes = static_cast<double>(text.size());
  const auto pair = [&](double weight) {
    return Value::array({likelihood.log_likelihood, static_cast<std::int64_t>(weight)});
  };
  Sample sample;
  sample.add_ratio("word_perplexity", likelihood.log_likelihood, words, pair(words));
  sample.add_ratio("byte_perplexity", likelihood.log_likelihood, bytes, pair(bytes));
  sample.add_ratio("bits_per_byte", likelihood.log_likelihood, bytes, pair(bytes));
  return sample;
}

// Of a conversation whose answers are all behind [request] max_length: no tokens in the loss.
Sample without_tokens(const Definition& definition) {
  Sample sample;
  for (const MetricDefinition& metric : definition.metrics) sample.logged[metric.name] = nullptr;
  return sample;
}

Result<Sample> score_one(const Definition& definition, const Value& document,
                         const std::vector<Likelihood>& likelihoods, const std::string& input,
                         const std::string& family) {
  if (likelihoods.empty()) {
    if (definition.file.request.kind == RequestKind::kLoss) return without_tokens(definition);
    return make_error(ErrorCode::kCorruption, "no likelihoods");
  }
  switch (definition.file.request.kind) {
    case RequestKind::kMultipleChoice:
      return score_choices(definition, document, likelihoods, family);
    case RequestKind::kLoglikelihood:
      return score_continuation(joined(likelihoods));
    case RequestKind::kLoss:
      return score_conversation(joined(likelihoods));
    default:
      return score_text(joined(likelihoods), input);
  }
}

// One metric over all documents: its value, the standard error of lm-eval, and the clustered one.
struct Aggregate {
  double value = 0;
  std::optional<double> standard, clt, clustered;
};

Aggregate aggregate(const std::string& aggregation, std::span<const Part> parts,
                    std::span<const std::string> clusters) {
  std::vector<double> values, weights;
  for (const Part& part : parts) {
    values.push_back(part.value);
    weights.push_back(part.weight);
  }
  Aggregate found;
  if (aggregation == "mean") {
    found.value = metrics::mean(values);
    found.standard = metrics::sample_stderr(values);
    found.clt = metrics::clt_stderr(values);
    const std::set<std::string> distinct(clusters.begin(), clusters.end());
    if (distinct.size() < clusters.size())
      found.clustered = metrics::clustered_stderr(values, clusters);
    return found;
  }
  const double ratio = metrics::ratio(values, weights);
  const auto error = metrics::ratio_stderr(values, weights, clusters);
  double scale = 1;  // d value / d ratio
  if (aggregation == "bits_per_byte") {
    scale = 1 / std::log(2.0);
    found.value = ratio / std::log(2.0);
  } else if (aggregation == "token_mean") {
    found.value = ratio;
  } else {
    found.value = scale = std::exp(ratio);
  }
  if (error.has_value()) found.clustered = *error * scale;
  return found;
}

Value number_or_na(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Value(*value) : Value("N/A");
}

protocol::Metric published(const MetricDefinition& metric, const Aggregate& found, bool own_rows,
                           const ScoreOptions& options) {
  protocol::Metric out;
  out.name = metric.name;
  out.higher_is_better = metric.higher_is_better;
  if (!std::isfinite(found.value)) {
    out.missing = "the aggregate is no finite number";
    return out;
  }
  out.value = found.value;
  const bool wanted = options.bootstrap_iters > 0 || !own_rows;
  if (wanted && found.clustered.has_value() && std::isfinite(*found.clustered)) {
    out.stderr_value = found.clustered;
    out.stderr_source = "clustered";
  } else if (wanted && own_rows) {
    out.stderr_value = found.standard;
  }
  return out;
}

struct Gathered {  // of the documents of which something was scored
  std::vector<std::string> clusters;
  std::vector<std::map<std::string, Part>> samples;
};

void fill_result(protocol::TaskResult& result, const Definition& definition,
                 const Gathered& gathered, const ScoreOptions& options, Scores& scores) {
  Value entry = Value::object();
  entry["alias"] = definition.file.name;
  for (const MetricDefinition& metric : definition.metrics) {
    std::vector<Part> parts;
    for (const auto& sample : gathered.samples) parts.push_back(sample.at(metric.name));
    const Aggregate found = aggregate(metric.aggregation, parts, gathered.clusters);
    entry[metric.name + ",none"] = number_or_na(found.value);
    entry[metric.name + "_stderr,none"] =
        number_or_na(options.bootstrap_iters > 0 ? found.standard : std::nullopt);
    entry[metric.name + "_stderr_clt,none"] = number_or_na(found.clt);
    entry[metric.name + "_stderr_clustered,none"] = number_or_na(found.clustered);
    result.metrics.push_back(published(metric, found, metric.aggregation == "mean", options));
    if (metric.aggregation != "mean") continue;
    for (const Part& part : parts) scores.values_of[metric.name].push_back(part.value);
  }
  result.lmms_results = python_json(entry);
}

Value notes_of(const Definition& definition, const std::vector<Response>& chosen,
               const ScoreOptions& options) {
  Value notes = Value::object();
  notes["compat"] = options.compat;
  if (definition.file.request.kind == RequestKind::kMultipleChoice) {
    const auto doubts = doubts_about(chosen, {});
    if (!doubts.empty()) notes["flags"] = doubts;
  }
  if (options.narrowed) notes["narrowed"] = true;
  if (options.truncated_pictures > 0) notes["truncated_pictures"] = options.truncated_pictures;
  if (options.cut_off > 0) notes["cut_documents"] = options.cut_off;  // at [request] max_length
  return notes;
}

// What lm-eval logs of a likelihood: the logarithm and whether it is greedy.
Value shown_likelihoods(const std::vector<Likelihood>& likelihoods) {
  Value list = Value::array();
  for (const Likelihood& one : likelihoods)
    list.push_back(Value::array({one.log_likelihood, one.is_greedy}));
  return list;
}

Value token_counts(const std::vector<Likelihood>& likelihoods) {
  Value list = Value::array();
  for (const Likelihood& one : likelihoods) list.push_back(Value{{"output_tokens", one.tokens}});
  return list;
}

// Of loss and rolling there is nothing that is expected but the document itself.
std::string target_text(const Definition& definition, const Value& document, const Sample& sample) {
  if (!sample.target.empty()) return sample.target;
  if (definition.target_text) return *definition.target_text;
  if (definition.target_column.empty()) return "";
  return python_str(document.value(definition.target_column, Value()));
}

}  // namespace

Result<Scores> score_likelihoods(const Definition& definition, const Task& task,
                                 std::span<const Response> responses,
                                 std::span<const std::string> inputs, const ScoreOptions& options) {
  const std::string& name = definition.file.name;
  Scores scores;
  scores.has_one_mean = false;
  Gathered gathered;
  std::vector<Response> chosen;
  const Value config = task_config(definition, options);
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const std::string place = name + ": document " + std::to_string(responses[i].doc_id);
    if (options.stop.stop_requested())
      return make_error(ErrorCode::kCancelled, name + ": stopped while scoring");
    if (options.advanced) options.advanced();
    EVALCAR_ASSIGN_OR_RETURN(const std::string text, task.document_json(responses[i].doc_id));
    EVALCAR_ASSIGN_OR_RETURN(const Value document, parse_json(text));
    auto likelihoods = decode_likelihoods(responses[i].text);
    if (!likelihoods.has_value()) return with_context(std::move(likelihoods).error(), place);
    auto sample = score_one(definition, document, *likelihoods, inputs[i], options.model_family);
    if (!sample.has_value()) return with_context(std::move(sample).error(), place);
    SampleLine line;
    line.doc_id = responses[i].doc_id;
    line.target = target_text(definition, document, *sample);
    line.filtered = shown_likelihoods(*likelihoods);
    line.response = line.filtered;
    line.token_counts = token_counts(*likelihoods);
    line.metrics = Value::object();
    for (const MetricDefinition& metric : definition.metrics)
      line.metrics[metric.name] = sample->logged[metric.name];
    line.input = inputs[i];
    scores.lines.push_back(format_sample_line(
        line, document, Value::array({line.input, name, definition.file.split})));
    chosen.push_back({.doc_id = responses[i].doc_id, .text = sample->chosen});
    if (sample->parts.empty()) {
      scores.values.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    gathered.clusters.push_back(
        definition.cluster_column.empty()
            ? std::to_string(responses[i].doc_id)
            : python_str(document.value(definition.cluster_column, Value())));
    scores.values.push_back(sample->parts.at(definition.metrics.front().name).value /
                            sample->parts.at(definition.metrics.front().name).weight);
    gathered.samples.push_back(std::move(sample->parts));
  }
  if (gathered.samples.empty())
    return make_error(ErrorCode::kCorruption,
                      name + ": of none of its " + std::to_string(responses.size()) +
                          " documents a token of the assistant's is left before [request] "
                          "max_length");
  protocol::TaskResult& result = scores.result;
  result.task = name;
  result.version = definition.file.version;
  result.alias = name;
  result.num_fewshot = options.num_fewshot;
  result.n = static_cast<std::int64_t>(responses.size());
  result.n_original = task.size();
  fill_result(result, definition, gathered, options, scores);
  result.lmms_config = python_json(config);
  result.notes = python_json(notes_of(definition, chosen, options));
  return scores;
}

}  // namespace evalcar::tasks
