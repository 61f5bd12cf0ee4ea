#include "agent/cli/run_command.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/cli/complete_settings.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/http_api.h"
#include "agent/cli/run_config_watch.h"
#include "agent/cli/signals.h"
#include "agent/cli/watch_loop.h"
#include "agent/config/few_shot.h"
#include "agent/config/run_config.h"
#include "agent/run/agent.h"
#include "agent/run/evaluation_settings.h"
#include "agent/service/init_process.h"
#include "agent/service/reload.h"
#include "agent/service/service_manager.h"
#include "agent/supervise/evaluator_process.h"
#include "agent/supervise/find_evaluator.h"
#include "agent/watch/inotify.h"
#include "evaluator/tasks/task_file.h"
#include "store/base/timed_file_system.h"
#include "store/state/location.h"

namespace evalcar::cli {
namespace {

bool some_have_examples(const FileSystem& files, const config::EvaluateSettings& evaluate) {
  return std::ranges::any_of(evaluate.tasks, [&](const std::string& name) {
    const auto task = tasks::find_task(files, evaluate.tasks_dir, name);
    return task.has_value() && task->shots > 0;
  });
}

/// Without tasks of its own it takes up what the trainer wrote beside its checkpoints.
Result<config::Config> with_run_config(const RunOptions& options, const FileSystem& files,
                                       config::Config config) {
  const auto run = config::read_run_config(files, config.settings.watch.output_dir.front());
  if (!run.has_value()) {
    if (run.error().code != ErrorCode::kNotFound) return run.error();
    spdlog::info("no tasks are named, and none are taken from the run: {}", run.error().message);
    return config;
  }
  const auto taken = config::overrides_left_open(config, *run);
  std::vector<config::Override> all = taken;
  all.insert(all.end(), options.overrides.begin(), options.overrides.end());
  for (const config::Override& one : taken) {
    spdlog::info("{}: {} = {}", one.source, one.key, one.text);
  }
  for (const std::string& note : run->notes) spdlog::info("{}", note);
  EVALCAR_ASSIGN_OR_RETURN(auto loaded, config::load(files, options.config_file, all));
  loaded.run_config = run->file;
  if (std::ranges::find(taken, "evaluate.num_fewshot", &config::Override::key) != taken.end()) {
    config::EvaluateSettings& evaluate = loaded.settings.evaluate;
    evaluate.num_fewshot = config::settled_shots(evaluate.num_fewshot, std::nullopt,
                                                 some_have_examples(files, evaluate));
  }
  return loaded;
}

Result<config::Config> load_settings(const RunOptions& options, const FileSystem& files) {
  EVALCAR_ASSIGN_OR_RETURN(auto config,
                           config::load(files, options.config_file, options.overrides));
  const std::vector<std::string>& dirs = config.settings.watch.output_dir;
  if (config.settings.evaluate.tasks.empty() && dirs.size() == 1 && !options.serve) {
    EVALCAR_ASSIGN_OR_RETURN(config, with_run_config(options, files, std::move(config)));
  }
  for (const std::string& warning : config.warnings) spdlog::warn("{}", warning);
  if (!agent_service::is_process_of_unit()) {
    for (const std::string& note : config.unit_notes) spdlog::warn("{}", note);
  }
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

/// The API alone: what is evaluated is what jobs ask for, wherever under the roots it lies.
void serve_only(const RunOptions& options, config::Settings& settings) {
  config::ServerSettings& server = settings.server;
  const bool nowhere = server.listen.empty() && server.unix_socket.empty();
  if (nowhere || !options.host.empty() || options.port != 0) {
    std::string host = options.host.empty() ? "127.0.0.1" : options.host;
    if (host.find(':') != std::string::npos && !host.starts_with('[')) host = "[" + host + "]";
    server.listen = host + ":" + std::to_string(options.port == 0 ? 8000 : options.port);
  }
  if (!options.roots.empty()) server.allowed_roots = options.roots;
  if (server.allowed_roots.empty()) server.allowed_roots = settings.watch.output_dir;
  if (server.allowed_roots.empty()) {
    server.allowed_roots = {absolute_path(".")};
    spdlog::info("requests may name what is below {} (--root, server.allowed_roots)",
                 server.allowed_roots.front());
  }
  settings.watch.output_dir.clear();
  settings.evaluate.tasks.clear();
  settings.evaluate.eval_strategy = config::EvalStrategy::kNo;
}

/// What SIGHUP asks for: a whole configuration that can take the place of `now`.
Result<config::Config> reread(const RunOptions& options, TimedFileSystem& files,
                              const config::Config& now) {
  EVALCAR_ASSIGN_OR_RETURN(auto config, load_settings(options, files));
  guard_places(files, config.settings);
  if (options.serve) serve_only(options, config.settings);
  EVALCAR_RETURN_IF_ERROR(
      complete_settings(files, config.settings, options.serve ? Use::kServe : Use::kWatch));
  guard_places(files, config.settings);  // a hub's id has become a folder
  EVALCAR_RETURN_IF_ERROR(agent_service::check_reload(now.settings, config.settings));
  if (config.settings.evaluate.data_dir != now.settings.evaluate.data_dir) {
    EVALCAR_RETURN_IF_ERROR(check_data_dir(files, config.settings.evaluate.data_dir));
  }
  return config;
}

/// A command may have the database for a moment.
template <typename Make>
auto patiently(const Make& make, const config::Settings& settings) {
  constexpr int kTries = 20;
  auto made = make(settings);
  for (int tries = 1;
       tries < kTries && !made.has_value() && made.error().code == ErrorCode::kUnavailable;
       ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    made = make(settings);
  }
  return made;
}

/// The umask that gives files this mode ("0640") and folders the same with x for whoever may read.
mode_t umask_of(const std::string& file_mode) {
  const auto mode = static_cast<mode_t>(std::stoul(file_mode, nullptr, 8));  // of a checked choice
  return 0777U & ~(mode | ((mode & 0444U) >> 2U));
}

/// Where this agent's jobs are remembered.
Result<std::string> job_book_path(const RunOptions& options, const FileSystem& files,
                                  const config::Settings& settings) {
  if (!settings.store.path.empty()) return settings.store.path + ".jobs";
  if (options.serve) {
    std::string place = settings.server.listen + settings.server.unix_socket;
    for (char& c : place) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
    }
    return join_path(state::state_directory(), "serve-" + place + ".jobs");
  }
  // That of the first directory, unless an earlier start, with the directories in another order or
  // fewer of them, made one beside another.
  std::string first;
  for (const std::string& output_dir : settings.watch.output_dir) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string database,
                             state::default_database_path(files, output_dir));
    const std::string book = database + ".jobs";
    if (files.info(book).has_value()) return book;
    if (first.empty()) first = book;
  }
  return first;
}

Result<std::unique_ptr<HttpApi>> start_api(const RunOptions& options, FileSystem& files,
                                           const Clock& clock, const config::Settings& settings) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string book, job_book_path(options, files, settings));
  return HttpApi::start(files, clock, settings, book);
}

/// None of the output directories exists.
bool nothing_there(const FileSystem& files, const std::vector<std::string>& output_dirs) {
  return std::ranges::none_of(output_dirs, [&](const std::string& path) {
    const auto info = files.info_followed(path);
    return info.has_value() || info.error().code != ErrorCode::kNotFound;
  });
}

}  // namespace

int run_run(const RunOptions& options, FileSystem& disk, std::ostream& out, std::ostream& err) {
  // Before any thread: it forks.
  if (const auto code = agent_service::become_init_if_first(); code.has_value()) return *code;
  TimedFileSystem files(disk, {.stopping = Signals::stop_pending});
  auto config = load_settings(options, files);
  if (config.has_value() && options.print_config) {
    out << config::print_effective(*config);
    return kExitDone;
  }
  if (config.has_value()) guard_places(files, config->settings);
  const Use use = options.serve ? Use::kServe : options.once ? Use::kOnce : Use::kWatch;
  if (options.serve && config.has_value()) serve_only(options, config->settings);
  const auto complain = [&](const Error& error) {
    err << (options.serve ? "evalcar serve: " : "evalcar run: ") << error.message << '\n';
    return exit_code_of(error);
  };
  const auto complain_of_start = [&](const Error& error) {
    const int code = complain(error);
    // A newer schema, a network file system: starting again does not help, another setting does.
    return error.code == ErrorCode::kUnsupported ? kExitUsage : code;
  };
  const Status complete =
      config.has_value() ? complete_settings(files, config->settings, use) : Status(config.error());
  if (!complete.has_value()) return complain(complete.error());
  guard_places(files, config->settings);  // a hub's id has become a folder
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
  agent_service::ServiceManager manager(clock, agent_service::take_manager_address());
  Signals signals;
  run::Surroundings around{files, clock, {}, EVALCAR_VERSION, {}, {}, {}, nullptr, {}};
  around.stopping = [&manager, loop = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == loop) manager.alive();  // long work goes on
    return Signals::stop_pending();
  };
  run::FirstSeenOf first_seen;
  around.first_seen = &first_seen;
  around.evaluator_program = *evaluator;
  around.self_command = {files.real_path("/proc/self/exe").value_or("evalcar")};
  around.make_notifier = [&files] { return std::make_unique<watch::Inotify>(files); };
  const auto make_agent = [&](const config::Settings& settings) {
    manager.alive();  // recovery may take its time
    // Whoever trains reads what is published, whatever umask this was started with.
    (void)::umask(umask_of(settings.publish.file_mode));
    around.aliases = alias_finder(files, settings);
    return run::Agent::create(around, settings, {.once = options.once, .serve = options.serve},
                              std::make_unique<supervise::EvaluatorProcess>(run::evaluator_command(
                                  *evaluator, settings.evaluate, settings.limits)));
  };
  const auto api = start_api(options, files, clock, config->settings);
  if (!api.has_value()) return complain_of_start(api.error());
  if (*api != nullptr) {
    around.desk = &(*api)->desk();
    around.board = &(*api)->board();
  }
  RunConfigWatch run_config(files, clock);
  WatchLoop loop(
      signals, manager, clock,
      [&](const config::Config& now) { return reread(options, files, now); },
      [&](const config::Config& now) { return !options.once && run_config.changed(now); });
  config::Config current = std::move(*config);
  auto agent = make_agent(current.settings);
  while (true) {
    if (!agent.has_value()) return complain_of_start(agent.error());
    WatchLoop::End end = loop.run(**agent, current);
    agent->reset();  // it lets go of the database, for the next one
    if (!end.next.has_value()) return end.exit_code;
    config::Config before = std::exchange(current, std::move(*end.next));
    agent = patiently(make_agent, current.settings);
    if (agent.has_value()) {
      if (*api != nullptr) (*api)->take_up(files, clock, current.settings);
      continue;
    }
    spdlog::error("the configuration stays as it was: {}", agent.error().message);
    current = std::move(before);
    agent = patiently(make_agent, current.settings);
  }
}

}  // namespace evalcar::cli
