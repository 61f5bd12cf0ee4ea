#include "evaluator/tasks/score_command.h"

#include <algorithm>
#include <map>
#include <ostream>

#include "evaluator/metrics/mmmu.h"
#include "evaluator/metrics/python_number.h"
#include "evaluator/metrics/python_random.h"
#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/likelihoods.h"
#include "evaluator/tasks/python_json.h"
#include "evaluator/tasks/task.h"

namespace evalcar::tasks {
namespace {

constexpr std::uint64_t kMostSampleBytes = std::uint64_t{4} << 30U;

struct Logged {
  std::vector<Response> responses;
  std::vector<std::string> inputs;
  std::vector<Value> documents;  ///< what the lines tell of them: the target, of mme its pair
};

// A file of samples as a task: of a document only what its line tells is known.
class LoggedTask final : public Task {
 public:
  LoggedTask(TaskFile file, const Logged& logged) : file_(std::move(file)) {
    for (std::size_t i = 0; i < logged.responses.size(); ++i) {
      documents_[logged.responses[i].doc_id] =
          logged.documents[i].dump(-1, ' ', false, Value::error_handler_t::replace);
    }
  }
  const TaskFile& file() const override { return file_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(documents_.size()); }
  Result<std::vector<std::int64_t>> select(std::optional<double> /*limit*/,
                                           std::int64_t /*offset*/) const override {
    return make_error(ErrorCode::kUnsupported, "logged samples are scored as they are");
  }
  Result<Prompt> prompt(std::int64_t /*doc_id*/, std::string_view /*model_family*/) const override {
    return make_error(ErrorCode::kUnsupported, "logged samples have no pictures");
  }
  Result<FewShotTexts> few_shot(std::span<const std::int64_t> /*doc_ids*/,
                                std::string_view /*model_family*/,
                                const FewShotOptions& /*options*/) const override {
    return make_error(ErrorCode::kUnsupported, "logged samples are scored as they are");
  }
  Result<std::string> document_json(std::int64_t doc_id) const override {
    const auto found = documents_.find(doc_id);
    if (found == documents_.end())
      return make_error(ErrorCode::kInternal, "document " + std::to_string(doc_id));
    return found->second;
  }
  std::string data_fingerprint() const override { return {}; }

 private:
  TaskFile file_;
  std::map<std::int64_t, std::string> documents_;
};

// Of a kind that scores given tokens: [[log-likelihood, greedy], …] beside the token counts. Empty
// for any other line.
std::vector<Likelihood> likelihoods_of(const Value& line) {
  const Value logged = line.value("filtered_resps", Value());
  const Value counts = line.value("token_counts", Value());
  std::vector<Likelihood> found;
  if (!logged.is_array() || !counts.is_array() || logged.size() != counts.size()) return found;
  for (std::size_t i = 0; i < logged.size(); ++i) {
    const Value& one = logged[i];
    const Value tokens =
        counts[i].is_object() ? counts[i].value("output_tokens", Value()) : Value();
    const bool is_one = one.is_array() && one.size() == 2 && one[0].is_number() &&
                        one[1].is_boolean() && tokens.is_number_integer();
    if (!is_one) return {};
    found.push_back({one[0].get<double>(), tokens.get<std::int64_t>(), one[1].get<bool>()});
  }
  return found;
}

// The text that was generated: "resps" where it differs from what was scored; several answers: the
// first.
Result<std::string> response_of(const Value& line, RequestKind kind) {
  const Value none = Value::array();
  if (kind == RequestKind::kLoss && line.value("filtered_resps", Value()) == none &&
      line.value("token_counts", Value()) == none)
    return encode_likelihoods({});
  if (const auto likelihoods = likelihoods_of(line); !likelihoods.empty())
    return encode_likelihoods(likelihoods);
  const char* key = line.contains("resps") ? "resps" : "filtered_resps";
  if (!line.contains(key))
    return make_error(ErrorCode::kCorruption, "neither \"resps\" nor \"filtered_resps\"");
  const Value* value = &line[key];
  while (value->is_array() && !value->empty()) value = &(*value)[0];
  if (!value->is_string())
    return make_error(ErrorCode::kCorruption, std::string("\"") + key + "\" is not a text");
  return value->get<std::string>();
}

// str() of a list of texts is read back as one.
Value target_of(const Value& line) {
  const Value target = line.value("target", Value());
  if (!target.is_string()) return target;
  const auto& text = target.get_ref<const std::string&>();
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    if (const auto list = metrics::parse_python_list(text)) return Value(*list);
  }
  return target;
}

// The columns that a scorer reads, as far as the line repeats them.
Value document_of(const Value& line, const Definition& definition) {
  Value document = Value::object();
  if (!definition.target_column.empty()) document[definition.target_column] = target_of(line);
  if (definition.scorer.name != "mme") return document;
  for (const MetricDefinition& metric : definition.metrics) {
    const auto logged = line.find(metric.name);
    if (logged == line.end() || !logged->is_object()) continue;
    for (const char* const name : {"question_id", "category"}) {
      if (const auto found = logged->find(name); found != logged->end()) document[name] = *found;
    }
  }
  return document;
}

Result<Logged> read_samples(const FileSystem& files, const std::string& path,
                            const Definition& definition) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string content, read_file(files, path, kMostSampleBytes));
  struct Entry {
    Response response;
    std::string input;
    Value document;
  };
  std::map<std::int64_t, Entry> by_id;  // lmms-eval writes rank by rank
  std::int64_t number = 0;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view text = std::string_view(content).substr(at, end - at);
    at = end + 1;
    const std::string place = path + ":" + std::to_string(++number);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto line = parse_json(text);
    if (!line) return with_context(line.error(), place);
    if (!line->is_object() || !line->contains("doc_id") || !(*line)["doc_id"].is_number_integer()) {
      return make_error(ErrorCode::kCorruption,
                        place + ": not a sample: expected an object with an integer \"doc_id\"");
    }
    auto text_of = response_of(*line, definition.file.request.kind);
    if (!text_of) return with_context(text_of.error(), place);
    Entry entry;
    entry.response.doc_id = (*line)["doc_id"].get<std::int64_t>();
    entry.response.text = std::move(*text_of);
    const Value input = line->value("input", Value(""));
    if (input.is_string()) entry.input = input.get<std::string>();
    entry.document = document_of(*line, definition);
    const std::int64_t id = entry.response.doc_id;
    if (!by_id.emplace(id, std::move(entry)).second) {
      return make_error(ErrorCode::kCorruption, place + ": document " + std::to_string(id) +
                                                    " was there before: two runs in one file?");
    }
  }
  if (by_id.empty()) return make_error(ErrorCode::kCorruption, path + ": no samples in it");
  Logged logged;
  for (auto& [id, entry] : by_id) {
    logged.responses.push_back(std::move(entry.response));
    logged.inputs.push_back(std::move(entry.input));
    logged.documents.push_back(std::move(entry.document));
  }
  return logged;
}

// What a sample counts for, by its metrics' names.
Value sample_scores(const Scores& scores, std::size_t i, const std::string& main,
                    const Definition& definition) {
  Value sample = Value::object();
  if (definition.file.request.kind == RequestKind::kGenerate) {
    const bool apart = i < scores.values_count_for.size() && !scores.values_count_for[i].empty();
    sample[apart ? scores.values_count_for[i] : main] = scores.values[i];
    return sample;
  }
  const auto line = parse_json(scores.lines[i]);
  for (const MetricDefinition& metric : definition.metrics) {
    if (line && line->contains(metric.name)) sample[metric.name] = (*line)[metric.name];
  }
  return sample;
}

Value report(const Scores& scores, const Logged& logged, const Definition& definition) {
  Value result = Value::object();
  result["task"] = scores.result.task;
  result["n"] = scores.result.n;
  result["metrics"] = Value::object();
  for (const protocol::Metric& metric : scores.result.metrics) {
    if (metric.value) result["metrics"][metric.name] = *metric.value;
    if (metric.stderr_value) result["metrics"][metric.name + "_stderr"] = *metric.stderr_value;
  }
  const std::string main =
      scores.result.metrics.empty() ? "score" : scores.result.metrics.front().name;
  result["per_sample"] = Value::array();
  for (std::size_t i = 0; i < scores.values.size(); ++i) {
    Value sample = Value::object();
    sample["doc_id"] = logged.responses[i].doc_id;
    sample.update(sample_scores(scores, i, main, definition));
    result["per_sample"].push_back(std::move(sample));
  }
  if (const auto notes = parse_json(scores.result.notes)) result["notes"] = *notes;
  return result;
}

int fail(std::ostream& err, const Error& error, int code) {
  err << "evalcar score: " << error.message << "\n";
  return code;
}

int code_of(const Error& error) {
  return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

int run_score(const ScoreCommandOptions& options, FileSystem& files, std::ostream& out,
              std::ostream& err) {
  auto file = find_task(files, options.tasks_dir, options.task);
  if (!file) return fail(err, file.error(), 2);
  const auto definition = definition_of(*file);
  if (!definition) return fail(err, definition.error(), 2);
  auto logged = read_samples(files, options.samples, *definition);
  if (!logged) return fail(err, logged.error(), code_of(logged.error()));

  const std::string& scorer = definition->scorer.name;
  const bool lines_hold_answers = file->request.kind == RequestKind::kGenerate && scorer != "vqa" &&
                                  scorer != "mmmu" && !definition->target_column.empty() &&
                                  definition->cluster_column.empty();
  if (!file->request.choices.empty() && !definition->prompt.variants.empty()) {
    err << "evalcar score: the choices of " << options.task
        << " follow from the model's family ([prompt.variants]), which sample lines do not name: "
           "they cannot be scored again\n";
    return 2;
  }
  std::unique_ptr<Task> task;
  if (!options.data_dir.empty() || !definition->data_files.empty()) {
    auto opened = Task::open(files, *file, options.data_dir);
    if (!opened) return fail(err, opened.error(), code_of(opened.error()));
    task = std::move(*opened);
  } else if (lines_hold_answers) {
    task = std::make_unique<LoggedTask>(*file, *logged);
  } else {
    err << "evalcar score: the sample lines of " << options.task
        << " do not hold the answers: give the data folder with --data DIR (it holds "
        << file->data_set << ")\n";
    return 2;
  }
  PythonRandom random(options.seed);
  ScoreOptions score_options;
  score_options.compat = options.compat;
  score_options.seed = options.seed;
  score_options.bootstrap_iters = options.bootstrap_iters;
  const auto scores = score(*task, logged->responses, logged->inputs, score_options, random);
  if (!scores) return fail(err, scores.error(), code_of(scores.error()));

  if (options.json) {
    out << python_json(report(*scores, *logged, *definition)) << "\n";
    return 0;
  }
  out << options.task << ": " << scores->result.n << " samples\n";
  for (const protocol::Metric& metric : scores->result.metrics) {
    if (!metric.value) {
      out << "  " << metric.name << "  –  " << metric.missing << "\n";
      continue;
    }
    out << "  " << metric.name << "  " << metrics::float_repr(*metric.value);
    if (metric.stderr_value)
      out << "  ± " << metrics::float_repr(metrics::round_to(*metric.stderr_value, 6));
    if (!metric.stderr_source.empty()) out << " (" << metric.stderr_source << ")";
    out << "\n";
  }
  return 0;
}

}  // namespace evalcar::tasks
