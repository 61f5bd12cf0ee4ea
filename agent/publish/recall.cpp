#include "agent/publish/recall.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/publish/metrics_line.h"
#include "agent/publish/metrics_log.h"
#include "agent/publish/utc.h"

namespace evalcar::publish {
namespace {

using Json = nlohmann::ordered_json;
using state::PublishedEvaluation;

constexpr std::uint64_t kMaxLog = std::uint64_t{1} << 30U;
constexpr std::uint64_t kMaxResults = std::uint64_t{64} << 20U;
constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 30U;

/// Deeper than anything of ours is none of ours: parts of a document are copied and written by
/// recursion. No object then.
Json parse_shallow(const std::string& text) {
  constexpr int kMaxDepth = 64;
  bool too_deep = false;
  const auto watch_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json json = Json::parse(text, watch_depth, /*allow_exceptions=*/false);
  if (too_deep) return {};
  return json;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<std::int64_t> integer_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

Json object_of(const Json& parent, const char* key) {
  const auto found = parent.find(key);
  return found != parent.end() && found->is_object() ? *found : Json::object();
}

Error unfit(std::string what) { return make_error(ErrorCode::kCorruption, std::move(what)); }

struct Line {
  Json json;
  std::string text;
  std::int64_t seq = 0;
};

/// The whole lines of metrics.jsonl that are objects with a seq; a torn tail is left alone.
class Lines {
 public:
  Lines(const FileSystem& files, const std::string& dir)
      : content_(read_file(files, join_path(dir, "metrics.jsonl"), kMaxLog).value_or("")) {}

  /// The next one; absent behind the last. It may be none of ours: without a seq.
  struct Next {
    Line line;
    bool is_ours = false;
  };
  std::optional<Next> next() {
    const std::size_t end = content_.find('\n', start_);
    if (end == std::string::npos) return std::nullopt;
    Next next;
    next.line.text = content_.substr(start_, end - start_);
    start_ = end + 1;
    next.line.json = parse_shallow(next.line.text);
    if (!next.line.json.is_object()) return next;
    const auto seq = integer_of(next.line.json, "seq");
    next.is_ours = seq.has_value();
    next.line.seq = seq.value_or(0);
    return next;
  }

 private:
  std::string content_;
  std::size_t start_ = 0;
};

/// Below `dir`, whatever a line says.
Result<std::string> path_below(const std::string& dir, const std::string& relative) {
  bool fits = !relative.empty() && relative.front() != '/';
  for (std::size_t start = 0; start <= relative.size() && fits;) {
    const std::size_t end = std::min(relative.find('/', start), relative.size());
    fits = relative.substr(start, end - start) != "..";
    start = end + 1;
  }
  if (!fits) return unfit("names no results file of ours: '" + relative + "'");
  return join_path(dir, relative);
}

std::string without_results(std::string path) {
  constexpr std::string_view kEnd = "_results.json";
  if (path.ends_with(kEnd)) path.resize(path.size() - kEnd.size());
  return path;
}

/// Of the record and, for what the file says already, of the file.
Result<protocol::EvaluationResult> result_of(const Json& record, const Json& file) {
  EVALCAR_ASSIGN_OR_RETURN(protocol::Message message,
                           protocol::decode(object_of(record, "result").dump()));
  auto* const result = std::get_if<protocol::EvaluationResult>(&message);
  if (result == nullptr) return unfit("the record holds no result");
  const Json notes = object_of(object_of(file, "evalcar"), "notes");
  for (protocol::TaskResult& task : result->tasks) {
    if (!task.error.empty()) continue;
    const char* const name = task.task.c_str();
    task.lmms_results = object_of(object_of(file, "results"), name).dump();
    task.lmms_config = object_of(object_of(file, "configs"), name).dump();
    task.notes = object_of(notes, name).dump();
  }
  return std::move(*result);
}

state::CheckpointObservation checkpoint_of(const Json& record, const Json& line,
                                           const std::string& kind, const state::Run& run) {
  state::CheckpointObservation seen;
  seen.name = text_of(line, "checkpoint");
  seen.path = join_path(run.output_dir, seen.name);
  seen.step = integer_of(line, "global_step").value_or(0);
  seen.layout = text_of(record, "layout");
  seen.device = static_cast<std::uint64_t>(integer_of(record, "device").value_or(0));
  seen.inode = static_cast<std::uint64_t>(integer_of(record, "inode").value_or(0));
  const auto list = record.find("files");
  if (list == record.end()) return seen;
  state::KindObservation of_kind;
  of_kind.kind = kind;
  of_kind.complete = true;
  of_kind.files = state::decode_files(list->dump());
  if (of_kind.files.empty()) return seen;
  of_kind.fingerprint = state::content_fingerprint(of_kind.files);
  for (const state::FileIdentity& file : of_kind.files) {
    of_kind.size_bytes += file.size_bytes;
    of_kind.mtime_ns = std::max(of_kind.mtime_ns, file.mtime_ns);
  }
  seen.kinds.push_back(std::move(of_kind));
  return seen;
}

/// Every number of the result is in the line, the same.
bool numbers_agree(const Json& line, const std::string& kind,
                   const protocol::EvaluationResult& result) {
  const Json written = object_of(line, "metrics");
  const auto values = metric_values(kind, result, {});
  return std::all_of(values.begin(), values.end(), [&written](const auto& value) {
    const auto found = written.find(value.first);
    return found != written.end() && found->is_number() && *found == value.second;
  });
}

/// Those of the results file, which is the only one of its files yet. Absent samples files are no
/// fault: evaluate.log_samples may be off.
Status read_samples(const FileSystem& files, PublishedEvaluation& published) {
  const std::string results = published.files.front();
  const std::string stem = without_results(results);
  published.files.clear();
  for (const protocol::TaskResult& task : published.result.tasks) {
    if (!task.error.empty()) continue;
    std::string path = stem;
    path.append("_samples_").append(task.task).append(".jsonl");
    const auto text = read_file(files, path, kMaxSamples);
    if (!text.has_value()) {
      if (text.error().code == ErrorCode::kNotFound) continue;
      return text.error();
    }
    published.files.push_back(path);
    for (std::size_t start = 0, end = 0; (end = text->find('\n', start)) != std::string::npos;
         start = end + 1) {
      protocol::Scored sample;
      sample.task = task.task;
      sample.fingerprint = task.fingerprint;
      sample.line = text->substr(start, end - start);
      const auto doc = integer_of(Json::parse(sample.line, nullptr, false), "doc_id");
      if (!doc.has_value()) return unfit(path + ": a line without doc_id");
      sample.doc_id = *doc;
      published.samples.push_back(std::move(sample));
    }
  }
  published.files.push_back(results);
  return {};
}

/// Without its samples.
Result<PublishedEvaluation> published_of(const FileSystem& files, const std::string& dir,
                                         const state::Run& run, const Line& line) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string path, path_below(dir, text_of(line.json, "results")));
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxResults));
  const Json file = parse_shallow(text);
  if (!file.is_object()) return unfit(path + ": is no JSON object");
  const Json record = object_of(object_of(file, "evalcar"), "record");
  if (record.empty()) return unfit(path + ": was written by an older evalcar, without a record");

  // publish.dir may hold the lines of another life of the directory, of the same name.
  const std::string mark = text_of(record, "run_mark");
  if (!mark.empty() && !run.mark.empty() && mark != run.mark) {
    return unfit(path + ": is of another life of the output directory");
  }

  PublishedEvaluation published;
  published.kind = text_of(line.json, "checkpoint_type");
  published.generation = integer_of(record, "generation").value_or(1);
  published.dtype = text_of(record, "dtype");
  published.compute_dtype = text_of(record, "compute_dtype");
  published.finished_at = text_of(record, "finished_at");
  if (!read_utc(published.finished_at).has_value()) {
    return unfit(path + ": finished_at is no time of ours: '" + published.finished_at + "'");
  }
  EVALCAR_ASSIGN_OR_RETURN(published.settings,
                           protocol::decode_settings(object_of(record, "settings").dump()));
  EVALCAR_ASSIGN_OR_RETURN(published.result, result_of(record, file));
  published.checkpoint = checkpoint_of(record, line.json, published.kind, run);

  // Who wrote it or changed it since is not asked; what does not fit together is not taken.
  state::Evaluation evaluation;
  evaluation.run = run.name;
  evaluation.step = published.checkpoint.step;
  evaluation.kind = published.kind;
  evaluation.weights_sha256 = published.result.weights_sha256;
  evaluation.settings = published.settings;
  evaluation.settings_sha256 = state::settings_sha256(published.settings, published.dtype);
  const std::string key = text_of(line.json, "evaluation");
  const bool same = (key == evaluation_key(evaluation, published.result) ||
                     key == evaluation_key(evaluation, published.result, published.generation)) &&
                    published.result.weights_sha256 == text_of(line.json, "weights_sha256") &&
                    numbers_agree(line.json, published.kind, published.result);
  if (!same) return unfit(path + ": says something else than the line");

  published.files.push_back(path);
  published.publication.seq = line.seq;
  published.publication.line = line.text;
  published.publication.supersedes = integer_of(line.json, "supersedes");
  published.publication.published_at = text_of(line.json, "time");
  if (!read_utc(published.publication.published_at).has_value()) {
    return unfit("its time is none of ours: '" + published.publication.published_at + "'");
  }
  return published;
}

/// Of the same checkpoint, kind, tasks and settings: the later one replaced the earlier.
std::string identity_of(const PublishedEvaluation& published) {
  std::vector<std::string> tasks = published.settings.tasks;
  std::sort(tasks.begin(), tasks.end());
  return Json({published.checkpoint.name, published.generation, published.kind, tasks,
               state::settings_sha256(published.settings, published.dtype)})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<std::string> record_of(const state::Reader& reader, const state::Evaluation& evaluation,
                              const protocol::EvaluationResult& result) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Checkpoint checkpoint,
                           reader.checkpoint(evaluation.checkpoint_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto files,
                           reader.files_of(evaluation.checkpoint_id, evaluation.kind));
  protocol::EvaluationResult bare = result;
  for (protocol::TaskResult& task : bare.tasks) {
    task.lmms_results = task.lmms_config = task.notes = "{}";
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  const auto run = std::find_if(runs.begin(), runs.end(), [&evaluation](const state::Run& one) {
    return one.id == evaluation.run_id;
  });
  Json record = Json::object();
  record["run_mark"] = run == runs.end() ? "" : run->mark;
  record["generation"] = checkpoint.generation;
  record["layout"] = checkpoint.layout;
  record["device"] = checkpoint.device;
  record["inode"] = checkpoint.inode;
  record["files"] = Json::parse(state::encode_files(files), nullptr, false);
  record["dtype"] = evaluation.dtype;
  record["compute_dtype"] = evaluation.compute_dtype;
  record["finished_at"] = evaluation.finished_at;
  record["settings"] = Json::parse(protocol::encode_settings(evaluation.settings), nullptr, false);
  record["result"] = Json::parse(protocol::encode(bare), nullptr, false);
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// First all lines are read, then those that the database lacks are judged, newest first, since a
/// later one stands for an earlier one; then they are taken, oldest first: the newest number is the
/// current. Samples are read last: those of one evaluation may be a gigabyte.
struct Recall::State {
  const FileSystem& files;
  std::string dir;
  state::Store& store;
  state::Run run;
  Recalled recalled = {};

  std::optional<Lines> unread = {};
  std::vector<Line> lines = {};
  std::set<std::int64_t> replaced = {};            ///< lines that a later one stands for
  std::optional<std::set<std::string>> keys = {};  ///< of lines that are known
  std::size_t judged = 0;                          ///< of `lines`, from the end
  std::set<std::string> identities = {};
  std::map<std::int64_t, PublishedEvaluation> found = {};  ///< by seq; not yet taken

  /// One piece of work; false: there is none left.
  Result<bool> work();
  bool read_one();
  Status read_keys();
  void judge_one();
  Status take_one();
  void leave(std::int64_t seq, const Error& why);
};

Result<bool> Recall::State::work() {
  if (!unread.has_value()) unread.emplace(files, dir);
  if (read_one()) return true;
  if (!keys.has_value()) EVALCAR_RETURN_IF_ERROR(read_keys());
  if (judged < lines.size()) {
    judge_one();
    return true;
  }
  if (found.empty()) return false;
  EVALCAR_RETURN_IF_ERROR(take_one());
  return true;
}

bool Recall::State::read_one() {
  auto next = unread->next();
  if (!next.has_value()) return false;
  if (!next->is_ours) return true;
  if (const auto seq = integer_of(next->line.json, "supersedes")) replaced.insert(*seq);
  lines.push_back(std::move(next->line));
  return true;
}

Status Recall::State::read_keys() {
  EVALCAR_ASSIGN_OR_RETURN(const auto known, store.read().publications(run.id));
  keys.emplace();
  for (const state::Publication& publication : known) {
    keys->insert(text_of(Json::parse(publication.line, nullptr, false), "evaluation"));
  }
  return {};
}

void Recall::State::leave(std::int64_t seq, const Error& why) {
  if (replaced.contains(seq)) return;
  recalled.left.push_back("line " + std::to_string(seq) + ": " + why.message);
}

void Recall::State::judge_one() {
  const Line& line = lines[lines.size() - ++judged];
  const std::string key = text_of(line.json, "evaluation");
  const auto is_final = line.json.find("final");
  if (is_final != line.json.end() && *is_final == false) return;  // the score of a part
  if (text_of(line.json, "run") != run.name || key.empty() || !keys->insert(key).second) return;
  auto published = published_of(files, dir, run, line);
  if (!published.has_value()) return leave(line.seq, published.error());
  if (!identities.insert(identity_of(*published)).second) return;
  found.emplace(line.seq, std::move(published).value());
}

Status Recall::State::take_one() {
  const std::int64_t seq = found.begin()->first;
  PublishedEvaluation& published = found.begin()->second;
  const Status read = read_samples(files, published);
  if (!read.has_value()) {
    leave(seq, read.error());
  } else {
    EVALCAR_ASSIGN_OR_RETURN(const bool taken, store.take_published(run.id, published));
    recalled.taken += taken ? 1 : 0;
  }
  found.erase(found.begin());
  return {};
}

Recall::Recall(const FileSystem& files, std::string dir, state::Store& store, state::Run run)
    : state_(std::make_unique<State>(State{files, std::move(dir), store, std::move(run)})) {}
Recall::~Recall() = default;
Recall::Recall(Recall&&) noexcept = default;
Recall& Recall::operator=(Recall&&) noexcept = default;

const Recalled& Recall::recalled() const { return state_->recalled; }

Result<bool> Recall::step(const std::function<bool()>& enough) {
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool more, state_->work());
    if (!more) return true;
    if (enough()) return false;
  }
}

Result<Recalled> recall_published(const FileSystem& files, const std::string& dir,
                                  state::Store& store, const state::Run& run) {
  Recall recall(files, dir, store, run);
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool done, recall.step([] { return false; }));
  return recall.recalled();
}

std::int64_t published_generation(const FileSystem& files, const std::string& dir,
                                  const std::string& stem) {
  Lines lines(files, dir);
  std::string name;
  while (const auto next = lines.next()) {
    if (next->is_ours) name = text_of(next->line.json, "run");
  }
  if (!name.starts_with(stem + "-")) return 0;
  std::int64_t generation = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + stem.size() + 1, end, generation);
  return parsed.ec == std::errc{} && parsed.ptr == end && generation > 0 ? generation : 0;
}

}  // namespace evalcar::publish
