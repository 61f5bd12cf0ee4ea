#include "agent/cli/complete_settings.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "evaluator/tasks/task_file.h"
#include "store/checkpoint/home_place.h"
#include "store/checkpoint/hub_cache.h"
#include "store/checkpoint/output_place.h"

namespace evalcar::cli {
namespace {

/// Where a path leads, also of what does not exist yet.
std::string place_of(const FileSystem& files, const std::string& path) {
  if (const auto real = files.real_path(path); real.has_value()) return *real;
  const auto above = files.real_path(parent_path(path));
  return above.has_value() ? join_path(*above, base_name(path)) : path;
}

bool is_utf8(const std::string& text) {
  using Bad = nlohmann::json::error_handler_t;
  const nlohmann::json json(text);
  return json.dump(-1, ' ', false, Bad::ignore) == json.dump(-1, ' ', false, Bad::replace);
}

/// A relative path says nothing once the folder of this process was deleted, and what goes out to
/// others (JSON, event files, the database) is UTF-8.
Status check_names(const FileSystem& files, const std::vector<std::string>& dirs) {
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
Status check_distinct(const FileSystem& files, const std::vector<std::string>& dirs) {
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

}  // namespace

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  std::error_code ignored;
  std::string result = std::filesystem::absolute(path, ignored).lexically_normal().string();
  while (result.size() > 1 && result.back() == '/') result.pop_back();
  return result;
}

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

}  // namespace evalcar::cli
