#include "agent/publish/results_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

#include "agent/publish/table.h"
#include "store/base/hash.h"

namespace evalcar::publish {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// JSON that another program made; an object, or an error that names what it was to be.
Result<OrderedJson> parse_object(const std::string& text, const std::string& what) {
  if (text.empty()) return OrderedJson::object();
  OrderedJson value = OrderedJson::parse(text, nullptr, false);
  if (!value.is_object()) {
    return make_error(ErrorCode::kCorruption, what + ": not a JSON object: " + text.substr(0, 80));
  }
  return value;
}

/// A text of an object that another program made; the default where it is no text.
std::string text_or(const OrderedJson& object, const char* key, const char* otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

/// lmms-eval writes the version as the task file has it: a number (mmmu_val: 0.0), or a word.
OrderedJson version_value(const std::string& version) {
  OrderedJson value = OrderedJson::parse(version, nullptr, false);
  return value.is_number() ? value : OrderedJson(version);
}

OrderedJson higher_is_better(const protocol::TaskResult& task, const OrderedJson& config) {
  OrderedJson directions = OrderedJson::object();
  const auto list = config.find("metric_list");
  if (list != config.end() && list->is_array()) {
    for (const OrderedJson& entry : *list) {
      if (!entry.is_object() || !entry.contains("metric") || !entry["metric"].is_string()) continue;
      directions[entry["metric"].get<std::string>()] =
          entry.contains("higher_is_better") ? entry["higher_is_better"] : OrderedJson(nullptr);
    }
  }
  if (directions.empty()) {
    for (const protocol::Metric& metric : task.metrics) {
      directions[metric.name] = metric.higher_is_better;
    }
  }
  return directions;
}

std::optional<double> score_of(const OrderedJson& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number()) return value.get<double>();
  if (value.is_object() && value.contains("score")) {
    const OrderedJson& nested = value["score"];
    if (nested.is_number() || nested.is_boolean()) return score_of(nested);
  }
  return std::nullopt;
}

/// lmms-eval's efficiency_metrics._extract_score.
std::optional<double> score_of_sample(const OrderedJson& sample, const std::string& score_key) {
  std::vector<std::string> keys = {score_key, "score", "acc", "accuracy", "exact_match"};
  for (const auto& [key, value] : sample.items()) {
    if (key.ends_with("_score")) keys.push_back(key);
  }
  for (const std::string& key : keys) {
    if (!sample.contains(key)) continue;
    if (const auto score = score_of(sample[key]); score.has_value()) return score;
  }
  return std::nullopt;
}

/// One entry of lmms-eval's "efficiency".
struct Efficiency {
  double docs = 0;
  double docs_with_tokens = 0;
  double input_tokens = 0;
  double output_tokens = 0;
  double correct = 0;

  void add_sample(const OrderedJson& sample, const std::string& score_key) {
    ++docs;
    bool counted = false;
    const auto tokens = sample.find("token_counts");
    if (tokens != sample.end() && tokens->is_array()) {
      for (const OrderedJson& entry : *tokens) {
        if (!entry.is_object()) continue;
        counted = true;
        if (entry.contains("input_tokens") && entry["input_tokens"].is_number()) {
          input_tokens += entry["input_tokens"].get<double>();
        }
        if (entry.contains("output_tokens") && entry["output_tokens"].is_number()) {
          output_tokens += entry["output_tokens"].get<double>();
        }
      }
    }
    if (counted) ++docs_with_tokens;
    if (const auto score = score_of_sample(sample, score_key); score.value_or(0) > 0) {
      correct += *score;
    }
  }
  void add(const Efficiency& other) {
    docs += other.docs;
    docs_with_tokens += other.docs_with_tokens;
    input_tokens += other.input_tokens;
    output_tokens += other.output_tokens;
    correct += other.correct;
  }
  OrderedJson json() const {
    OrderedJson object = OrderedJson::object();
    object["docs"] = docs;
    object["docs_with_token_counts"] = docs_with_tokens;
    object["total_input_tokens"] = input_tokens;
    object["total_output_tokens"] = output_tokens;
    object["total_tokens"] = input_tokens + output_tokens;
    object["total_correct_score"] = correct;
    object["avg_output_tokens_per_sample"] =
        docs_with_tokens > 0 ? output_tokens / docs_with_tokens : 0.0;
    object["tokens_per_correct_answer"] =
        correct > 0 ? OrderedJson(output_tokens / correct) : OrderedJson();
    return object;
  }
};

struct SampleFacts {
  OrderedJson by_task = OrderedJson::object();
  Efficiency overall;
  OrderedJson task_hashes = OrderedJson::object();
};

/// Reads all lines once: token counts, scores, and lmms-eval's task hash.
Result<SampleFacts> sample_facts(const std::vector<const protocol::TaskResult*>& tasks,
                                 const OrderedJson& configs, const SampleSource& samples) {
  SampleFacts facts;
  for (const protocol::TaskResult* task : tasks) {
    const OrderedJson& config = configs[task->task];
    const std::string score_key = text_or(config, "score_key", "score");
    Efficiency efficiency;
    Sha256 hash;
    std::int64_t index = 0;
    EVALCAR_RETURN_IF_ERROR(samples(task->task, [&](std::string_view line) -> Status {
      const OrderedJson sample = OrderedJson::parse(line, nullptr, false);
      if (!sample.is_object()) {
        return make_error(ErrorCode::kCorruption, task->task + ": sample " + std::to_string(index) +
                                                      " is not a JSON object");
      }
      efficiency.add_sample(sample, score_key);
      hash.update("sample_" + std::to_string(index++));
      hash.update(text_or(sample, "doc_hash", ""));
      return {};
    }));
    facts.by_task[task->task] = efficiency.json();
    facts.overall.add(efficiency);
    facts.task_hashes[task->task] = to_hex(hash.finish());
  }
  return facts;
}

double seconds_of(WallTime time) {
  return static_cast<double>(time.time_since_epoch().count()) / 1e6;
}

OrderedJson number_or_null(const std::optional<double>& value) {
  return value.has_value() ? OrderedJson(*value) : OrderedJson(nullptr);
}

/// lmms-eval's "config": how the run was started.
OrderedJson config_json(const RunFacts& facts, const protocol::EvaluationResult& result,
                        const std::string& model_args) {
  const protocol::EvaluationSettings& settings = facts.settings;
  OrderedJson config = OrderedJson::object();
  config["model"] = facts.architecture.empty() ? "evalcar" : facts.architecture;
  config["model_args"] = model_args;
  config["model_backend"] = "evalcar " + facts.version + " (chat)";
  config["batch_size"] =
      settings.batch_size == 0 ? std::string("auto") : std::to_string(settings.batch_size);
  config["batch_sizes"] = OrderedJson::array();
  config["device"] = facts.device;
  config["use_cache"] = nullptr;
  config["limit"] = number_or_null(settings.limit);
  config["offset"] = settings.offset;
  config["bootstrap_iters"] = settings.bootstrap_iters;
  config["process_docs_parallel"] = 1;
  config["gen_kwargs"] = settings.gen_kwargs;
  config["random_seed"] = settings.seed;
  for (const char* const key : {"numpy_seed", "torch_seed", "fewshot_seed"})
    config[key] = protocol::fewshot_seed_of(settings.seed);
  OrderedJson arguments = OrderedJson::parse(protocol::encode_settings(settings), nullptr, false);
  arguments["dtype"] = facts.dtype;
  arguments["weights"] = facts.weights;
  arguments["attn_implementation_used"] = result.attn_implementation;
  config["resolved_cli_args"] = std::move(arguments);
  return config;
}

/// What lmms-eval has no place for.
OrderedJson own_facts(const RunFacts& facts, const protocol::EvaluationResult& result) {
  OrderedJson own = OrderedJson::object();
  own["version"] = facts.version;
  own["evaluation"] = facts.evaluation_key;
  own["weights"] = facts.weights;
  own["weights_sha256"] = result.weights_sha256;
  own["dtype"] = facts.dtype;
  own["device"] = facts.device;
  own["seconds"] = result.seconds;
  own["failed_tasks"] = OrderedJson::object();
  own["notes"] = OrderedJson::object();
  own["bootstrap_stderr"] = OrderedJson::object();
  for (const protocol::TaskResult& task : result.tasks) {
    if (!task.error.empty()) {
      own["failed_tasks"][task.task] = task.error;
      continue;
    }
    OrderedJson notes = OrderedJson::parse(task.notes, nullptr, false);
    if (notes.is_object() && !notes.empty()) own["notes"][task.task] = std::move(notes);
    for (const protocol::Metric& metric : task.metrics) {
      if (metric.stderr_source.empty() || !metric.stderr_value.has_value()) continue;
      own["bootstrap_stderr"][task.task][metric.name + "," + metric.filter] = *metric.stderr_value;
    }
  }
  if (!facts.record.empty()) own["record"] = OrderedJson::parse(facts.record, nullptr, false);
  return own;
}

std::string dump(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

std::string sanitized_model_name(std::string_view checkpoint) {
  // lmms-eval: the last two components joined by "/", then each run of unwelcome characters → "__".
  while (checkpoint.size() > 1 && checkpoint.back() == '/') checkpoint.remove_suffix(1);
  const std::string last = base_name(checkpoint);
  const std::string before = parent_path(checkpoint);
  const bool two = checkpoint.find('/') != std::string_view::npos;
  const std::string name = two ? base_name(before) + "/" + last : last;
  constexpr std::string_view kUnwelcome = "\"<>:/\\|?*[]";
  std::string clean;
  bool in_run = false;
  for (const char c : name) {
    const bool bad = kUnwelcome.find(c) != std::string_view::npos;
    if (!bad) clean.push_back(c);
    if (bad && !in_run) clean += "__";
    in_run = bad;
  }
  return clean;
}

std::string date_name(WallTime time) {
  const std::time_t seconds =
      std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts);
  return text.data();
}

Result<std::string> results_json(const RunFacts& facts, const protocol::EvaluationResult& result,
                                 const SampleSource& samples) {
  std::vector<const protocol::TaskResult*> tasks;
  for (const protocol::TaskResult& task : result.tasks) {
    if (task.error.empty()) tasks.push_back(&task);
  }
  std::sort(tasks.begin(), tasks.end(),
            [](const auto* a, const auto* b) { return a->task < b->task; });

  OrderedJson root = OrderedJson::object();
  for (const char* const key : {"results", "group_subtasks", "configs", "versions", "n-shot",
                                "higher_is_better", "n-samples"}) {
    root[key] = OrderedJson::object();
  }
  for (const protocol::TaskResult* task : tasks) {
    const std::string& name = task->task;
    EVALCAR_ASSIGN_OR_RETURN(root["results"][name],
                             parse_object(task->lmms_results, name + ": results"));
    EVALCAR_ASSIGN_OR_RETURN(root["configs"][name],
                             parse_object(task->lmms_config, name + ": configs"));
    root["group_subtasks"][name] = OrderedJson::array();
    root["versions"][name] = version_value(task->version);
    root["n-shot"][name] = task->num_fewshot;
    root["higher_is_better"][name] = higher_is_better(*task, root["configs"][name]);
    root["n-samples"][name]["original"] = task->n_original;
    root["n-samples"][name]["effective"] = task->n_effective;
  }
  const std::string model_args = "pretrained=" + facts.checkpoint;
  root["config"] = config_json(facts, result, model_args);
  root["git_hash"] = nullptr;
  root["git_branch"] = nullptr;
  root["lmms_eval_version"] = "evalcar@" + facts.version;
  root["date"] = date_name(facts.finished);

  SampleFacts from_samples;
  if (samples) {
    EVALCAR_ASSIGN_OR_RETURN(from_samples, sample_facts(tasks, root["configs"], samples));
    const double tokens = from_samples.overall.output_tokens;
    root["throughput"]["total_gen_tokens"] = static_cast<std::int64_t>(tokens);
    if (!facts.resumed && result.seconds > 0) {
      root["throughput"]["total_elapsed_time"] = result.seconds;  // the whole evaluation's
      root["throughput"]["avg_speed"] = tokens / result.seconds;
    }
    root["throughput"]["avg_rank"] = 0.0;
  }
  root["usage"] = OrderedJson::object();
  if (samples) {
    root["efficiency"]["by_task"] = std::move(from_samples.by_task);
    root["efficiency"]["overall"] = from_samples.overall.json();
  }
  root["task_hashes"] = std::move(from_samples.task_hashes);
  root["model_source"] = "evalcar";
  root["model_name"] = facts.checkpoint;
  root["model_name_sanitized"] = sanitized_model_name(facts.checkpoint);
  root["system_instruction"] = nullptr;
  root["system_instruction_sha"] = nullptr;
  root["fewshot_as_multiturn"] = false;
  root["chat_template"] = nullptr;  // as lmms-eval's chat wrappers: theirs is the processor's
  root["chat_template_sha"] = nullptr;
  root["start_time"] = seconds_of(facts.started);
  root["end_time"] = seconds_of(facts.finished);
  root["total_evaluation_time_seconds"] =
      dump(OrderedJson(seconds_of(facts.finished) - seconds_of(facts.started)), -1);
  root["evalcar"] = own_facts(facts, result);
  return dump(root, 2);
}

Result<ResultsFiles> write_results_files(FileSystem& files, const std::string& dir,
                                         const RunFacts& facts,
                                         const protocol::EvaluationResult& result,
                                         const SampleSource& samples) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string json, results_json(facts, result, samples));
  const std::string folder = join_path(dir, sanitized_model_name(facts.checkpoint));
  EVALCAR_RETURN_IF_ERROR(make_directories(files, folder));
  const std::string stem = join_path(folder, date_name(facts.finished));
  ResultsFiles written;
  for (const protocol::TaskResult& task : result.tasks) {
    if (!samples || !task.error.empty()) continue;
    std::string text;
    EVALCAR_RETURN_IF_ERROR(samples(task.task, [&](std::string_view line) -> Status {
      text.append(line).push_back('\n');
      return {};
    }));
    const std::string path = stem + "_samples_" + task.task + ".jsonl";
    EVALCAR_RETURN_IF_ERROR(write_file_atomically(files, path, text));
    written.samples.push_back(path);
  }
  written.table = stem + "_table.md";
  EVALCAR_RETURN_IF_ERROR(write_file_atomically(files, written.table, results_table(result)));
  written.results = stem + "_results.json";
  EVALCAR_RETURN_IF_ERROR(write_file_atomically(files, written.results, json));
  return written;
}

}  // namespace evalcar::publish
