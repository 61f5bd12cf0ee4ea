#include "agent/cli/eval_command.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "agent/cli/complete_settings.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/progress_line.h"
#include "agent/cli/signals.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/results_files.h"
#include "agent/publish/table.h"
#include "agent/report/pace.h"
#include "agent/run/evaluation_settings.h"
#include "agent/supervise/evaluator_process.h"
#include "agent/supervise/find_evaluator.h"
#include "agent/supervise/supervisor.h"
#include "store/checkpoint/output_place.h"

namespace evalcar::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Watched {
  std::string path;
  FileInfo identity;
};

/// An error with the exit code that goes with it.
struct Refusal {
  int exit_code = kExitFailed;
  std::string message;
};

/// The files that the evaluation will read, if the checkpoint is whole.
std::variant<std::vector<Watched>, Refusal> files_of(const FileSystem& files,
                                                     const EvalOptions& options,
                                                     const std::string& base_model) {
  const std::string& dir = options.checkpoint;
  const auto info = files.info_followed(dir);
  if (!info.has_value() || info->type != FileType::kDirectory) {
    return Refusal{kExitUsage, dir + ": no such folder"};
  }
  checkpoint::LayoutOptions layout;
  layout.base_model = base_model;
  const auto report = checkpoint::inspect_layout(files, dir, layout);
  if (!report.has_value()) {
    const bool begun = report.error().code == ErrorCode::kUnavailable;
    return Refusal{begun ? kExitNotReady : kExitFailed, report.error().message};
  }
  const auto kind =
      std::find_if(report->kinds.begin(), report->kinds.end(),
                   [&](const checkpoint::KindState& k) { return k.kind == options.weights; });
  const std::string name(checkpoint::weights_kind_name(options.weights));
  if (kind == report->kinds.end()) {
    return Refusal{kExitUsage, dir + ": holds no " + name + " weights"};
  }
  if (kind->completeness != checkpoint::Completeness::kComplete) {
    const std::string reason = kind->reason.empty() ? "absent" : kind->reason;
    if (kind->unsupported) return Refusal{kExitFailed, reason};
    if (kind->damaged)
      return Refusal{kExitFailed, "the " + name + " weights are damaged: " + reason};
    return Refusal{kExitNotReady, dir + ": the " + name + " weights are not complete: " + reason};
  }
  std::vector<Watched> watched;
  for (const std::string& relative : kind->files) {
    const std::string path = join_path(dir, relative);
    const auto identity = files.info_followed(path);
    if (!identity.has_value()) return Refusal{kExitNotReady, identity.error().message};
    watched.push_back({path, *identity});
  }
  return watched;
}

/// "" if every file is still the one that was there at the start.
std::string changed_file(const FileSystem& files, const std::vector<Watched>& watched) {
  for (const Watched& file : watched) {
    const auto now = files.info_followed(file.path);
    if (!now.has_value() || !now->same_content_identity(file.identity)) return file.path;
  }
  return "";
}

/// What one evaluation gave.
struct Outcome {
  protocol::EvaluationResult result;
  protocol::Loaded loaded;
  std::string device;
  std::map<std::string, std::vector<std::string>> samples;  ///< scored lines, by task
};

int exit_code_of_failure(const supervise::JobFailed& failure) {
  if (failure.kind == "invalid_argument" || failure.kind == "no_device") return kExitUsage;
  const bool later = failure.kind == "unavailable" || failure.kind == protocol::kDeviceBusy;
  return later ? kExitNotReady : kExitFailed;
}

/// Drives the evaluator until the job ends.
std::variant<Outcome, Refusal> evaluate(supervise::Supervisor& supervisor, supervise::Job job,
                                        const Clock& clock) {
  Signals signals(Signals::Hangup::kStops);
  ProgressLine line(clock);
  report::Pace pace;
  Outcome outcome;
  supervisor.begin(std::move(job));
  while (true) {
    for (supervise::JobEvent& event : supervisor.step()) {
      if (auto* loaded = std::get_if<supervise::JobLoaded>(&event)) {
        outcome.loaded = loaded->loaded;
        supervisor.evaluate({});
      } else if (const auto* progress = std::get_if<protocol::Progress>(&event)) {
        pace.note(*progress, clock.monotonic_now());
        line.show(report::work_text(*pace.work(), line.terminal()));
      } else if (auto* scored = std::get_if<protocol::Scored>(&event)) {
        outcome.samples[scored->task].push_back(std::move(scored->line));
      } else if (auto* result = std::get_if<protocol::EvaluationResult>(&event)) {
        outcome.result = std::move(*result);
        if (supervisor.hello().has_value()) outcome.device = supervisor.hello()->device;
        return outcome;
      } else if (const auto* failed = std::get_if<supervise::JobFailed>(&event)) {
        return Refusal{exit_code_of_failure(*failed),
                       failed->message + " (" + failed->kind + ", at " + failed->stage + ")"};
      }
    }
    std::vector<pollfd> descriptors = {{signals.descriptor(), POLLIN, 0}};
    supervisor.add_descriptors(descriptors);
    const auto wait = supervisor.until_deadline().value_or(std::chrono::milliseconds(1000));
    (void)::poll(descriptors.data(), descriptors.size(),
                 static_cast<int>(std::min<std::int64_t>(wait.count(), 1000)));
    if (signals.take() == Signals::Told::kStop) return Refusal{kExitFailed, "stopped"};
  }
}

std::string json_of(const Outcome& outcome, const std::string& output) {
  OrderedJson results = OrderedJson::object();
  OrderedJson samples = OrderedJson::object();
  OrderedJson missing = OrderedJson::object();
  OrderedJson flags = OrderedJson::object();
  for (const protocol::TaskResult& task : outcome.result.tasks) {
    samples[task.task] = task.n;
    if (const auto doubts = publish::flags_of(task); !doubts.empty()) flags[task.task] = doubts;
    if (!task.error.empty()) missing[task.task] = task.error;
    OrderedJson& metrics = results[task.task] = OrderedJson::object();
    for (const protocol::Metric& metric : task.metrics) {
      if (metric.value.has_value() && std::isfinite(*metric.value)) {
        metrics[metric.name] = *metric.value;
        if (metric.stderr_value.has_value())
          metrics[metric.name + "_stderr"] = *metric.stderr_value;
      } else {
        missing[task.task + "/" + metric.name] = metric.missing;
      }
    }
  }
  OrderedJson document = {{"results", results},
                          {"samples", samples},
                          {"weights_sha256", outcome.result.weights_sha256},
                          {"output", output},
                          {"seconds", outcome.result.seconds}};
  if (!missing.empty()) document["missing"] = missing;
  if (!flags.empty()) document["flags"] = flags;
  return document.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

int run_eval(const EvalOptions& options, FileSystem& files, std::ostream& out, std::ostream& err) {
  const auto complain = [&err](int code, const std::string& message) {
    err << "evalcar eval: " << message << '\n';
    return code;
  };
  auto config = config::load(files, options.config_file, options.overrides);
  if (!config.has_value()) return complain(kExitUsage, config.error().message);
  config::Settings& settings = config->settings;
  if (const Status s = complete_settings(files, settings, Use::kOneCheckpoint); !s.has_value()) {
    return complain(exit_code_of(s.error()), s.error().message);
  }
  settings.limits.sample_pictures = 0;  // no page shows samples of no database
  EvalOptions absolute = options;
  if (const auto real = files.real_path(options.checkpoint); real.has_value()) {
    absolute.checkpoint = *real;
  }
  auto watched = files_of(files, absolute, settings.evaluate.base_model);
  if (const auto* refusal = std::get_if<Refusal>(&watched)) {
    return complain(refusal->exit_code, refusal->message);
  }
  // The folder that is made in it, too: a run that is called "checkpoints" gives it its name.
  for (const std::string& path :
       {options.output,
        join_path(options.output, publish::sanitized_model_name(absolute.checkpoint))}) {
    const Status place =
        checkpoint::check_output_place(files, path, checkpoint::OutputUse::kFilled);
    if (!place.has_value()) return complain(kExitUsage, "--output: " + place.error().message);
  }
  const auto program = supervise::find_evaluator(files);
  if (!program.has_value()) return complain(kExitUsage, program.error().message);
  // Before the work, not after it: an unwritable place costs nothing then.
  if (const Status made = make_directories(files, options.output); !made.has_value()) {
    return complain(kExitUsage, "--output: " + made.error().message);
  }

  const SystemClock clock;
  supervise::Supervisor supervisor(
      std::make_unique<supervise::EvaluatorProcess>(
          run::evaluator_command(*program, settings.evaluate, settings.limits)),
      clock, run::supervisor_options(settings.limits));
  supervise::Job job;
  job.load.id = "eval";
  job.load.dir = absolute.checkpoint;
  job.load.weights = std::string(checkpoint::weights_kind_name(options.weights));
  job.load.dtype = settings.evaluate.dtype;
  job.load.base_model = settings.evaluate.base_model;
  job.settings = run::evaluation_settings(settings.evaluate);
  const WallTime started = clock.wall_now();
  auto evaluated = evaluate(supervisor, job, clock);
  supervisor.stop();
  if (const auto* refusal = std::get_if<Refusal>(&evaluated)) {
    return complain(refusal->exit_code, refusal->message);
  }
  const Outcome& outcome = std::get<Outcome>(evaluated);
  const std::string changed = changed_file(files, std::get<std::vector<Watched>>(watched));
  if (!changed.empty()) {
    return complain(kExitFailed, changed + ": changed while it was evaluated; nothing is reported");
  }

  publish::RunFacts facts;
  facts.checkpoint = absolute.checkpoint;
  facts.weights = job.load.weights;
  facts.architecture = outcome.loaded.architecture;
  facts.dtype = outcome.loaded.dtype;
  facts.device = outcome.device;
  facts.version = EVALCAR_VERSION;
  facts.settings = job.settings;
  facts.started = started;
  facts.finished = clock.wall_now();
  publish::SampleSource source;
  if (settings.evaluate.log_samples) {
    source = [&outcome](const std::string& task,
                        const std::function<Status(std::string_view)>& line) -> Status {
      const auto lines = outcome.samples.find(task);
      if (lines == outcome.samples.end()) return {};
      for (const std::string& text : lines->second) EVALCAR_RETURN_IF_ERROR(line(text));
      return {};
    };
  }
  const auto written =
      publish::write_results_files(files, options.output, facts, outcome.result, source);
  std::size_t failed = 0;
  for (const protocol::TaskResult& task : outcome.result.tasks) {
    for (const std::string& flag : publish::flags_of(task)) {
      err << "evalcar eval: " << task.task << ": flagged: " << flag << '\n';
    }
    if (task.error.empty()) continue;
    ++failed;
    err << "evalcar eval: " << task.task << ": " << task.error << '\n';
  }
  if (options.json) {
    out << json_of(outcome, options.output) << '\n';
  } else {
    out << publish::results_table(outcome.result);
    if (written.has_value()) out << "\nsaved: " << written->results << '\n';
  }
  if (!written.has_value()) return complain(kExitFailed, written.error().message);
  if (failed == 0) return kExitDone;
  return failed == outcome.result.tasks.size() ? kExitFailed : kExitPartly;
}

}  // namespace evalcar::cli
