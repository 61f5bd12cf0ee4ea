// Every check is independent: one line each, and a hint where something is missing.
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "agent/cli/exit_code.h"
#include "agent/cli/run_command.h"
#include "agent/cli/small_commands.h"
#include "agent/supervise/child_process.h"
#include "agent/supervise/find_evaluator.h"
#include "evaluator/tasks/task_file.h"
#include "store/state/location.h"
#include "store/state/store.h"

namespace evalcar::cli {
namespace {

struct Finding {
  std::string name;
  bool ok = false;
  std::string text;
};

constexpr std::chrono::seconds kVersionLimit{30};

/// The first line that `program --version` prints.
Result<std::string> version_of(const std::string& program, const Clock& clock) {
  EVALCAR_ASSIGN_OR_RETURN(auto child, supervise::ChildProcess::spawn({program, "--version"}, -1));
  std::string text;
  std::optional<int> status;
  bool ended = false;
  const MonotonicTime start = clock.monotonic_now();
  while (!status.has_value() && clock.monotonic_now() - start < kVersionLimit) {
    pollfd waiting{child.output(), POLLIN, 0};
    // Its output ends well before libtorch is unloaded; from then on poll() would return at once.
    (void)::poll(ended ? nullptr : &waiting, ended ? 0 : 1, 10);
    status = child.try_wait();
    if (!ended) text += supervise::read_available(child.output(), 65536, ended);
  }
  text.resize(std::min(text.size(), text.find('\n')));
  if (status == 0 && !text.empty()) return text;
  return make_error(
      ErrorCode::kUnavailable,
      program + " --version: " + (status ? supervise::describe_wait_status(*status) : "no answer") +
          " " + text);
}

Finding check_evaluator(const FileSystem& files, const Clock& clock) {
  const auto program = supervise::find_evaluator(files);
  if (!program.has_value()) return {"evaluator", false, program.error().message};
  const auto version = version_of(*program, clock);
  if (!version.has_value()) return {"evaluator", false, version.error().message};
  return {"evaluator", true, *version + " (" + *program + ")"};
}

Finding check_configuration(const DoctorOptions& options, const FileSystem& files,
                            config::Settings& settings) {
  const auto config = config::load(files, options.config_file, options.overrides);
  if (!config.has_value()) return {"configuration", false, config.error().message};
  settings = config->settings;
  std::string text = options.config_file.empty() ? "defaults" : options.config_file;
  for (const std::string& warning : config->warnings) text += "; " + warning;
  return {"configuration", true, text};
}

Finding check_state_directory(FileSystem& files) {
  const std::string dir = state::state_directory();
  if (const Status made = make_directories(files, dir); !made.has_value()) {
    return {"state directory", false, made.error().message};
  }
  if (::access(dir.c_str(), W_OK) != 0) {
    return {"state directory", false, errno_error("write", dir, errno).message};
  }
  return {"state directory", true, dir};
}

/// Databases that were damaged and lie aside: somebody should know, and may want to look at them.
std::vector<Finding> check_databases(const FileSystem& files, const config::Settings& settings) {
  std::vector<std::string> paths;
  if (const auto found = state::list_databases(files); found.has_value()) paths = *found;
  if (!settings.store.path.empty()) paths.push_back(settings.store.path);
  std::vector<Finding> findings;
  for (const std::string& path : paths) {
    const auto aside = state::damaged_files(files, path);
    if (!aside.has_value() || aside->empty()) continue;
    findings.push_back({"database", false,
                        path + " was damaged and made anew; the old one lies in " + aside->back() +
                            ". Check the disk, then delete that file"});
  }
  return findings;
}

Finding check_inotify() {
  const supervise::OwnedFd fd(::inotify_init1(IN_CLOEXEC));
  if (fd.get() < 0) {
    return {"inotify", false, "not available: changes are found by polling (watch.poll_interval)"};
  }
  return {"inotify", true, "available"};
}

Finding check_gpu(const FileSystem& files) {
  if (files.info("/dev/nvidiactl").has_value()) return {"GPU", true, "an NVIDIA driver is loaded"};
  return {"GPU", true, "none seen: device \"auto\" means the CPU"};
}

std::vector<Finding> check_settings(const FileSystem& files, const config::Settings& settings) {
  std::vector<Finding> findings;
  for (const std::string& dir : settings.watch.output_dir) {
    const auto info = files.info_followed(dir);
    if (!info.has_value()) {
      findings.push_back({"output directory", true, dir + ": not there yet; it is waited for"});
    } else {
      const bool ok = ::access(dir.c_str(), R_OK | W_OK | X_OK) == 0;
      findings.push_back(
          {"output directory", ok, dir + (ok ? "" : ": cannot be read and written by this user")});
    }
  }
  for (const std::string& name : settings.evaluate.tasks) {
    const auto task = tasks::find_task(files, settings.evaluate.tasks_dir, name);
    findings.push_back({"task", task.has_value(), task ? name : task.error().message});
  }
  if (!settings.evaluate.data_dir.empty()) {
    const bool there = files.info_followed(settings.evaluate.data_dir).has_value();
    findings.push_back(
        {"data", there, settings.evaluate.data_dir + (there ? "" : ": no such folder")});
  }
  return findings;
}

}  // namespace

int run_doctor(const DoctorOptions& options, FileSystem& files, const Clock& clock,
               std::ostream& out) {
  config::Settings settings;
  std::vector<Finding> findings = {check_configuration(options, files, settings),
                                   check_evaluator(files, clock), check_state_directory(files),
                                   check_inotify(), check_gpu(files)};
  for (Finding& finding : check_databases(files, settings)) findings.push_back(std::move(finding));
  if (findings[0].ok) {
    for (Finding& finding : check_settings(files, settings)) findings.push_back(std::move(finding));
  }
  bool well = true;
  auto document = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    well = well && finding.ok;
    document.push_back({{"check", finding.name}, {"ok", finding.ok}, {"text", finding.text}});
    if (!options.json) {
      out << (finding.ok ? "ok       " : "PROBLEM  ") << finding.name << ": " << finding.text
          << '\n';
    }
  }
  if (options.json) {
    out << nlohmann::ordered_json{{"ok", well}, {"checks", document}}.dump(2) << '\n';
  }
  return well ? kExitDone : kExitFailed;
}

}  // namespace evalcar::cli
