#include "agent/cli/run_command.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "agent/cli/exit_code.h"
#include "agent/cli/progress_line.h"
#include "agent/cli/signals.h"
#include "agent/run/agent.h"
#include "agent/run/evaluation_settings.h"
#include "agent/supervise/evaluator_process.h"
#include "agent/supervise/find_evaluator.h"
#include "agent/watch/inotify.h"
#include "evaluator/tasks/task_file.h"
#include "store/base/timed_file_system.h"
#include "store/checkpoint/output_place.h"

namespace evalcar::cli {
namespace {

/// Absolute and without "." or a slash at the end; links stay, and it need not exist.
std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  std::error_code ignored;
  std::string result = std::filesystem::absolute(path, ignored).lexically_normal().string();
  while (result.size() > 1 && result.back() == '/') result.pop_back();
  return result;
}

Result<config::Config> load_settings(const RunOptions& options, const FileSystem& files) {
  EVALCAR_ASSIGN_OR_RETURN(auto config,
                           config::load(files, options.config_file, options.overrides));
  for (const std::string& warning : config.warnings) spdlog::warn("{}", warning);
  return config;
}

/// metric → its other names, of each task.
std::function<std::vector<std::string>(const std::string&, const std::string&)> alias_finder(
    const FileSystem& files, const config::Settings& settings) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> names;
  for (const std::string& name : settings.evaluate.tasks) {
    const auto task = tasks::find_task(files, settings.evaluate.tasks_dir, name);
    if (!task.has_value()) continue;
    for (const auto& [alias, metric] : task->aliases) names[{name, metric}].push_back(alias);
  }
  return [names](const std::string& task, const std::string& metric) {
    const auto found = names.find({task, metric});
    return found == names.end() ? std::vector<std::string>() : found->second;
  };
}

enum class Outcome { kEnded, kReload };

struct Turn {
  Outcome outcome = Outcome::kEnded;
  int exit_code = kExitDone;
  std::optional<config::Config> next;
};

/// kNotFound: it may come (a mount, a download); kInvalidArgument: it is something else.
Status check_data_dir(const FileSystem& files, const std::string& data_dir) {
  if (data_dir.empty()) return {};
  const auto info = files.info_followed(data_dir);
  if (info.has_value() && info->type == FileType::kDirectory) return {};
  const std::string where = "evaluate.data_dir: " + data_dir + ": ";
  if (info.has_value()) {
    return make_error(ErrorCode::kInvalidArgument, where + "is no folder");
  }
  return make_error(ErrorCode::kNotFound, where + "no such folder");
}

/// Places that may be on a mount whose server goes away. The agent must not go with it.
void guard_places(TimedFileSystem& files, const config::Settings& settings) {
  for (const std::string& dir : settings.watch.output_dir) files.guard(absolute_path(dir));
  for (const std::string& dir :
       {settings.publish.dir, settings.evaluate.base_model, settings.evaluate.data_dir}) {
    files.guard(absolute_path(dir));
  }
}

/// Loops until the agent is finished or a signal says otherwise. `data_dir`: the agent's.
Turn loop(run::Agent& agent, Signals& signals, const RunOptions& options, TimedFileSystem& files,
          const Clock& clock, const std::string& data_dir) {
  ProgressLine line(clock);
  while (true) {
    agent.step();
    if (agent.finished().has_value()) return {Outcome::kEnded, agent.stop(), {}};
    line.show(agent.progress());
    std::vector<pollfd> descriptors = {{signals.descriptor(), POLLIN, 0}};
    agent.add_descriptors(descriptors);
    (void)::poll(descriptors.data(), descriptors.size(),
                 static_cast<int>(agent.until_due().count()));
    switch (signals.take()) {
      case Signals::Told::kNothing:
        break;
      case Signals::Told::kStop:
        line.show("");
        spdlog::info("stopping");
        return {Outcome::kEnded, agent.stop(), {}};
      case Signals::Told::kReload: {
        auto config = load_settings(options, files);
        if (config.has_value()) guard_places(files, config->settings);
        Status complete = config.has_value()
                              ? complete_settings(files, config->settings, Use::kWatch)
                              : Status(config.error());
        if (complete.has_value() && config->settings.evaluate.data_dir != data_dir) {
          complete = check_data_dir(files, config->settings.evaluate.data_dir);
        }
        if (!complete.has_value()) {
          spdlog::error("the configuration stays as it was: {}", complete.error().message);
          break;
        }
        spdlog::info("the configuration was read again");
        (void)agent.stop();
        return {Outcome::kReload, kExitDone, std::move(config).value()};
      }
    }
  }
}

/// None of the output directories exists.
bool nothing_there(const FileSystem& files, const std::vector<std::string>& output_dirs) {
  return std::ranges::none_of(output_dirs, [&](const std::string& path) {
    const auto info = files.info_followed(path);
    return info.has_value() || info.error().code != ErrorCode::kNotFound;
  });
}

}  // namespace

Status complete_settings(const FileSystem& files, config::Settings& settings, Use use) {
  config::EvaluateSettings& e = settings.evaluate;
  for (std::string* const path :
       {&e.data_dir, &e.tasks_dir, &e.base_model, &settings.store.path, &settings.publish.dir}) {
    *path = absolute_path(*path);
  }
  for (std::string& dir : settings.watch.output_dir) dir = absolute_path(dir);
  const auto bad = [](std::string message) {
    return make_error(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (use != Use::kOneCheckpoint && settings.watch.output_dir.empty()) {
    return bad("no output directory: give it as an argument, or as watch.output_dir");
  }
  if (settings.watch.output_dir.size() > 1 &&
      (!settings.store.path.empty() || !settings.publish.dir.empty())) {
    return bad(
        "store.path and publish.dir are for one output directory; leave them out for several");
  }
  if (!settings.publish.dir.empty()) {
    const Status place =
        checkpoint::check_output_place(files, settings.publish.dir, checkpoint::OutputUse::kFilled);
    if (!place.has_value()) return bad("publish.dir: " + place.error().message);
  }
  if (!settings.store.path.empty()) {
    const Status place = checkpoint::check_output_place(files, settings.store.path,
                                                        checkpoint::OutputUse::kReplaced);
    if (!place.has_value()) return bad("store.path: " + place.error().message);
  }
  if (e.tasks.empty()) {
    return bad("no tasks: give --tasks a,b or evaluate.tasks (`evalcar tasks` lists them)");
  }
  for (const std::string& name : e.tasks) {
    const auto task = tasks::find_task(files, e.tasks_dir, name);
    if (!task.has_value()) return task.error();
  }
  const Status data = check_data_dir(files, e.data_dir);
  if (data.has_value()) return {};
  // Nobody is there to start an unattended run again, and its trainer does not wait.
  const bool may_come = data.error().code == ErrorCode::kNotFound;
  if (use != Use::kWatch || !may_come) return bad(data.error().message);
  spdlog::error("{}; checkpoints are watched and leased, and measured once it is there",
                data.error().message);
  return {};
}

int run_run(const RunOptions& options, FileSystem& disk, std::ostream& out, std::ostream& err) {
  TimedFileSystem files(disk, {.stopping = Signals::stop_pending});
  auto config = load_settings(options, files);
  if (config.has_value() && options.print_config) {
    out << config::print_effective(*config);
    return kExitDone;
  }
  if (config.has_value()) guard_places(files, config->settings);
  const Use use = options.once ? Use::kOnce : Use::kWatch;
  const Status complete =
      config.has_value() ? complete_settings(files, config->settings, use) : Status(config.error());
  if (!complete.has_value()) {
    err << "evalcar run: " << complete.error().message << '\n';
    return exit_code_of(complete.error());
  }
  if (options.once && nothing_there(files, config->settings.watch.output_dir)) {
    err << "evalcar run: " << config->settings.watch.output_dir.front()
        << ": does not exist, so there is nothing to evaluate; without --once it is waited for\n";
    return kExitNotReady;
  }
  const auto evaluator = supervise::find_evaluator(files);
  if (!evaluator.has_value()) {
    err << "evalcar run: " << evaluator.error().message << '\n';
    return kExitUsage;
  }

  const SystemClock clock;
  Signals signals;
  run::Surroundings around{files, clock, Signals::stop_pending, EVALCAR_VERSION, {}, {}, {}, {}};
  around.evaluator_program = *evaluator;
  around.self_command = {files.real_path("/proc/self/exe").value_or("evalcar")};
  around.make_notifier = [&files] { return std::make_unique<watch::Inotify>(files); };
  while (true) {
    const config::Settings settings = config->settings;
    around.aliases = alias_finder(files, settings);
    auto agent = run::Agent::create(around, settings, {.once = options.once},
                                    std::make_unique<supervise::EvaluatorProcess>(
                                        run::evaluator_command(*evaluator, settings.evaluate)));
    if (!agent.has_value()) {
      err << "evalcar run: " << agent.error().message << '\n';
      return exit_code_of(agent.error());
    }
    Turn turn = loop(**agent, signals, options, files, clock, settings.evaluate.data_dir);
    if (turn.outcome == Outcome::kEnded) return turn.exit_code;
    config = std::move(*turn.next);
  }
}

}  // namespace evalcar::cli
