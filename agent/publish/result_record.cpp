#include "agent/publish/result_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/publish/foreign_json.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/utc.h"

namespace evalcar::publish {
namespace {

using OrderedJson = nlohmann::ordered_json;
using state::PublishedEvaluation;

constexpr std::uint64_t kMaxResults = std::uint64_t{64} << 20U;

Error unfit(std::string what) { return make_error(ErrorCode::kCorruption, std::move(what)); }

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

/// Of the record and, for what the file says already, of the file.
Result<protocol::EvaluationResult> result_of(const OrderedJson& record, const OrderedJson& file) {
  EVALCAR_ASSIGN_OR_RETURN(protocol::Message message,
                           protocol::decode(object_of(record, "result").dump()));
  auto* const result = std::get_if<protocol::EvaluationResult>(&message);
  if (result == nullptr) return unfit("the record holds no result");
  const OrderedJson notes = object_of(object_of(file, "evalcar"), "notes");
  for (protocol::TaskResult& task : result->tasks) {
    if (!task.error.empty()) continue;
    const char* const name = task.task.c_str();
    task.lmms_results = object_of(object_of(file, "results"), name).dump();
    task.lmms_config = object_of(object_of(file, "configs"), name).dump();
    task.notes = object_of(notes, name).dump();
  }
  return std::move(*result);
}

state::CheckpointObservation checkpoint_of(const OrderedJson& record, const OrderedJson& line,
                                           const std::string& kind, const state::Run& run) {
  state::CheckpointObservation seen;
  seen.name = text_of(line, "checkpoint");
  seen.path = text_of(record, "path");
  if (seen.path.empty()) seen.path = join_path(run.output_dir, seen.name);
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
bool numbers_agree(const OrderedJson& line, const std::string& kind,
                   const protocol::EvaluationResult& result) {
  const OrderedJson written = object_of(line, "metrics");
  const auto values = metric_values(kind, result, {});
  return std::all_of(values.begin(), values.end(), [&written](const auto& value) {
    const auto found = written.find(value.first);
    return found != written.end() && found->is_number() && *found == value.second;
  });
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
  OrderedJson record = OrderedJson::object();
  record["run_mark"] = run == runs.end() ? "" : run->mark;
  record["generation"] = checkpoint.generation;
  // Of weights alone: where the folder of their name would be, another one may be.
  if (state::lies_elsewhere(checkpoint.path, checkpoint.name)) record["path"] = checkpoint.path;
  record["layout"] = checkpoint.layout;
  record["device"] = checkpoint.device;
  record["inode"] = checkpoint.inode;
  record["files"] = OrderedJson::parse(state::encode_files(files), nullptr, false);
  record["dtype"] = evaluation.dtype;
  record["compute_dtype"] = evaluation.compute_dtype;
  record["finished_at"] = evaluation.finished_at;
  record["settings"] =
      OrderedJson::parse(protocol::encode_settings(evaluation.settings), nullptr, false);
  record["result"] = OrderedJson::parse(protocol::encode(bare), nullptr, false);
  return record.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Result<PublishedEvaluation> published_of(const FileSystem& files, const std::string& dir,
                                         const state::Run& run, const std::string& whole) {
  const OrderedJson line = parse_shallow(whole);
  EVALCAR_ASSIGN_OR_RETURN(const std::string path, path_below(dir, text_of(line, "results")));
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, read_file(files, path, kMaxResults));
  const OrderedJson file = parse_shallow(text);
  if (!file.is_object()) return unfit(path + ": is no JSON object");
  const OrderedJson record = object_of(object_of(file, "evalcar"), "record");
  if (record.empty()) return unfit(path + ": was written by an older evalcar, without a record");

  // publish.dir may hold the lines of another life of the directory, of the same name; and a
  // directory that was renamed or copied has its own lines under another one.
  const std::string name = text_of(line, "run");
  const std::string mark = text_of(record, "run_mark");
  const bool knows_mark = !mark.empty() && !run.mark.empty();
  if (knows_mark ? mark != run.mark : name != run.name) {
    return unfit(path + ": is of another life of the output directory");
  }

  PublishedEvaluation published;
  published.kind = text_of(line, "checkpoint_type");
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
  published.checkpoint = checkpoint_of(record, line, published.kind, run);

  // Who wrote it or changed it since is not asked; what does not fit together is not taken.
  state::Evaluation evaluation;
  evaluation.run = name;
  evaluation.step = published.checkpoint.step;
  evaluation.kind = published.kind;
  evaluation.weights_sha256 = published.result.weights_sha256;
  evaluation.settings = published.settings;
  evaluation.settings_sha256 = state::settings_sha256(published.settings, published.dtype);
  const std::string key = text_of(line, "evaluation");
  const bool same = (key == evaluation_key(evaluation, published.result) ||
                     key == evaluation_key(evaluation, published.result, published.generation)) &&
                    published.result.weights_sha256 == text_of(line, "weights_sha256") &&
                    numbers_agree(line, published.kind, published.result);
  if (!same) return unfit(path + ": says something else than the line");

  published.files.push_back(path);
  published.publication.seq = integer_of(line, "seq").value_or(0);
  published.publication.line = whole;
  published.publication.supersedes = integer_of(line, "supersedes");
  published.publication.published_at = text_of(line, "time");
  if (!read_utc(published.publication.published_at).has_value()) {
    return unfit("its time is none of ours: '" + published.publication.published_at + "'");
  }
  return published;
}

}  // namespace evalcar::publish
