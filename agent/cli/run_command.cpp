#include "agent/cli/run_command.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/cli/exit_code.h"
#include "agent/cli/http_api.h"
#include "agent/cli/signals.h"
#include "agent/cli/watch_loop.h"
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
#include "store/checkpoint/home_place.h"
#include "store/checkpoint/hub_cache.h"
#include "store/checkpoint/output_place.h"
#include "store/state/location.h"

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
  return config::load(files, options.config_file, all);
}

Result<config::Config> load_settings(const RunOptions& options, const FileSystem& files) {
  EVALCAR_ASSIGN_OR_RETURN(auto config,
                           config::load(files, options.config_file, options.overrides));
  const std::vector<std::string>& dirs = config.settings.watch.output_dir;
  if (config.settings.evaluate.tasks.empty() && dirs.size() == 1 && !options.serve) {
    EVALCAR_ASSIGN_OR_RETURN(config, with_run_config(options, files, std::move(config)));
  }
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
  for (const std::string& dir : settings.watch.output_dir) {
    files.guard(absolute_path(dir));
    const std::string home =
        checkpoint::home_place(files, absolute_path(dir), settings.watch.pattern).path;
    files.guard(home);  // it may lie beside the directory
    files.read_through_links(absolute_path(dir), home);
  }
  for (const std::string& dir :
       {settings.publish.dir, settings.evaluate.base_model, settings.evaluate.data_dir}) {
    files.guard(absolute_path(dir));
  }
  if (const std::string& marker = settings.watch.exit_marker; marker.starts_with('/')) {
    files.guard(parent_path(marker));
  }
  for (const std::string& root : settings.server.allowed_roots) files.guard(absolute_path(root));
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
  EVALCAR_ASSIGN_OR_RETURN(const std::string database,
                           state::default_database_path(files, settings.watch.output_dir.front()));
  return database + ".jobs";
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

void make_paths_absolute(config::Settings& settings) {
  config::EvaluateSettings& e = settings.evaluate;
  for (std::string* const path : {&e.data_dir, &e.tasks_dir, &e.base_model, &settings.store.path,
                                  &settings.publish.dir, &settings.publish.webhook_secret_file,
                                  &settings.server.token_file, &settings.server.unix_socket}) {
    *path = absolute_path(*path);
  }
  for (std::string& dir : settings.server.allowed_roots) dir = absolute_path(dir);
  for (std::string& dir : settings.watch.output_dir) dir = absolute_path(dir);
}

Status place_base_model(const FileSystem& files, config::Settings& settings) {
  std::string& base = settings.evaluate.base_model;
  if (!checkpoint::is_hub_id(base)) return {};  // empty, or the path of a folder
  const auto found = checkpoint::find_model(files, {.id = base},
                                            checkpoint::hub_places(settings.evaluate.data_dir));
  if (!found.has_value()) {
    return make_error(ErrorCode::kInvalidArgument, "evaluate.base_model: " + found.error().message);
  }
  base = *found;
  return {};
}

/// Where a path leads, also of what does not exist yet.
static std::string place_of(const FileSystem& files, const std::string& path) {
  if (const auto real = files.real_path(path); real.has_value()) return *real;
  const auto above = files.real_path(parent_path(path));
  return above.has_value() ? join_path(*above, base_name(path)) : path;
}

static bool is_utf8(const std::string& text) {
  using Bad = nlohmann::json::error_handler_t;
  const nlohmann::json json(text);
  return json.dump(-1, ' ', false, Bad::ignore) == json.dump(-1, ' ', false, Bad::replace);
}

/// A relative path says nothing once the folder of this process was deleted, and what goes out to
/// others (JSON, event files, the database) is UTF-8.
static Status check_names(const FileSystem& files, const std::vector<std::string>& dirs) {
  for (const std::string& dir : dirs) {
    if (!dir.starts_with('/')) {
      return make_error(ErrorCode::kInvalidArgument,
                        dir + ": a relative path, and the folder that this was started in is gone");
    }
    for (const std::string& name : {dir, place_of(files, dir)}) {
      if (is_utf8(name)) continue;
      return make_error(ErrorCode::kInvalidArgument, name + ": its name is not UTF-8; rename it");
    }
  }
  return {};
}

/// One directory has one agent and one database, by whichever names it is given.
static Status check_distinct(const FileSystem& files, const std::vector<std::string>& dirs) {
  std::map<std::string, std::string> entries;  // by place
  for (const std::string& dir : dirs) {
    const auto [first, is_new] = entries.emplace(place_of(files, dir), dir);
    if (is_new) continue;
    return make_error(ErrorCode::kInvalidArgument, "watch.output_dir: " + first->second + " and " +
                                                       dir + " are the same directory (" +
                                                       first->first + "); name it once");
  }
  return {};
}

Status complete_settings(const FileSystem& files, config::Settings& settings, Use use) {
  EVALCAR_RETURN_IF_ERROR(place_base_model(files, settings));
  make_paths_absolute(settings);
  const config::EvaluateSettings& e = settings.evaluate;
  const auto bad = [](std::string message) {
    return make_error(ErrorCode::kInvalidArgument, std::move(message));
  };
  const bool watches = use == Use::kWatch || use == Use::kOnce;
  if (watches && settings.watch.output_dir.empty()) {
    return bad("no output directory: give it as an argument, or as watch.output_dir");
  }
  EVALCAR_RETURN_IF_ERROR(check_names(files, settings.watch.output_dir));
  EVALCAR_RETURN_IF_ERROR(check_distinct(files, settings.watch.output_dir));
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
  if (e.tasks.empty() && use != Use::kServe) {
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
  if (use == Use::kOnce || use == Use::kOneCheckpoint || !may_come)
    return bad(data.error().message);
  spdlog::error("{}; checkpoints are watched and leased, and measured once it is there",
                data.error().message);
  return {};
}

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
  if (!api.has_value()) return complain(api.error());
  if (*api != nullptr) {
    around.desk = &(*api)->desk();
    around.board = &(*api)->board();
  }
  WatchLoop loop(signals, manager, clock,
                 [&](const config::Config& now) { return reread(options, files, now); });
  config::Config current = std::move(*config);
  auto agent = make_agent(current.settings);
  while (true) {
    if (!agent.has_value()) {
      err << "evalcar run: " << agent.error().message << '\n';
      // A newer schema, a network file system: starting again does not help, another setting does.
      const bool refused = agent.error().code == ErrorCode::kUnsupported;
      return refused ? kExitUsage : exit_code_of(agent.error());
    }
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
