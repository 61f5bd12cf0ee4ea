#include "agent/publish/evaluation_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/publish/metrics_line.h"
#include "agent/publish/result_record.h"
#include "agent/publish/utc.h"
#include "store/base/stale_temporaries.h"

namespace evalcar::publish {

using OrderedJson = nlohmann::ordered_json;
using state::Evaluation;

Result<std::string> EvaluationFiles::key_of(const Evaluation& evaluation,
                                            const protocol::EvaluationResult& result) const {
  EVALCAR_ASSIGN_OR_RETURN(const bool is_return, store_.read().is_return(evaluation.id));
  return evaluation_key(evaluation, result, is_return ? evaluation.generation : 1);
}

std::string EvaluationFiles::results_dir(const Evaluation& evaluation) const {
  return join_path(options_.dir,
                   "results/" + std::to_string(evaluation.step) + "/" + evaluation.kind);
}

Result<RunFacts> EvaluationFiles::run_facts(const Evaluation& evaluation,
                                            const protocol::EvaluationResult& result) const {
  RunFacts facts;
  EVALCAR_ASSIGN_OR_RETURN(const auto attempts, store_.read().attempts(evaluation.id));
  facts.device =
      attempts.empty() || attempts.back().device.empty() ? options_.device : attempts.back().device;
  facts.resumed = std::ranges::any_of(attempts, [](const state::Attempt& attempt) {
    return attempt.outcome != "scored" && attempt.stage != "loading";
  });
  facts.checkpoint = evaluation.checkpoint_path;
  facts.weights = evaluation.kind;
  facts.dtype = evaluation.compute_dtype.empty() ? evaluation.dtype : evaluation.compute_dtype;
  facts.version = options_.version;
  EVALCAR_ASSIGN_OR_RETURN(facts.evaluation_key, key_of(evaluation, result));
  EVALCAR_ASSIGN_OR_RETURN(facts.record, record_of(store_.read(), evaluation, result));
  facts.settings = evaluation.settings;
  facts.finished = parse_utc(evaluation.finished_at);
  facts.started = facts.finished - std::chrono::duration_cast<std::chrono::microseconds>(
                                       std::chrono::duration<double>(evaluation.seconds));
  return facts;
}

/// The first second from `finished` on whose file name is free, or is this evaluation's already:
/// lmms-eval's names have whole seconds, and two short evaluations may share one.
Result<WallTime> EvaluationFiles::free_date(const std::string& dir, const RunFacts& facts) const {
  WallTime date = facts.finished;
  for (int tries = 0; tries < 1000; ++tries, date += std::chrono::seconds{1}) {
    const std::string path = join_path(join_path(dir, sanitized_model_name(facts.checkpoint)),
                                       date_name(date) + "_results.json");
    const auto text = read_file(files_, path, std::uint64_t{64} << 20U);
    if (!text.has_value()) {
      if (text.error().code == ErrorCode::kNotFound) return date;
      return text.error();
    }
    const OrderedJson json = OrderedJson::parse(*text, nullptr, false);
    const OrderedJson::json_pointer place("/evalcar/evaluation");
    if (json.is_object() && json.contains(place) && json[place] == facts.evaluation_key) {
      return date;
    }
  }
  return make_error(ErrorCode::kUnavailable,
                    dir + ": no free file name near " + date_name(facts.finished));
}

Result<ResultsFiles> EvaluationFiles::write(const Evaluation& evaluation,
                                            const protocol::EvaluationResult& result) {
  EVALCAR_ASSIGN_OR_RETURN(RunFacts facts, run_facts(evaluation, result));
  return write_in(results_dir(evaluation), std::move(facts), evaluation, result,
                  options_.log_samples);
}

Result<ResultsFiles> EvaluationFiles::write_part(const std::string& dir,
                                                 const Evaluation& evaluation,
                                                 const protocol::EvaluationResult& part,
                                                 bool with_samples) {
  EVALCAR_ASSIGN_OR_RETURN(RunFacts facts, run_facts(evaluation, part));
  facts.record.clear();
  return write_in(dir, std::move(facts), evaluation, part, with_samples);
}

Result<ResultsFiles> EvaluationFiles::write_in(const std::string& dir, RunFacts facts,
                                               const Evaluation& evaluation,
                                               const protocol::EvaluationResult& result,
                                               bool with_samples) {
  remove_stale_temporaries(files_, join_path(dir, sanitized_model_name(facts.checkpoint)));
  EVALCAR_ASSIGN_OR_RETURN(const WallTime date, free_date(dir, facts));
  facts.started += date - facts.finished;
  facts.finished = date;
  SampleSource samples;
  if (with_samples) {
    samples = [&](const std::string& task, const std::function<Status(std::string_view)>& line) {
      return store_.read().for_each_sample(evaluation.id, task, line);
    };
  }
  return write_results_files(files_, dir, facts, result, samples);
}

}  // namespace evalcar::publish
