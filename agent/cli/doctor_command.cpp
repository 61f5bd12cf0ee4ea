// The report: which checks are made, and how it is printed.
#include <nlohmann/json.hpp>

#include "agent/cli/doctor.h"
#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "store/base/text.h"
#include "store/state/location.h"
#include "store/state/store.h"

namespace evalcar::cli {
namespace {

using Level = Finding::Level;

Finding check_configuration(const DoctorOptions& options, const FileSystem& files,
                            config::Settings& settings) {
  const auto config = config::load(files, options.config_file, options.overrides);
  if (!config.has_value()) {
    return {"configuration", Level::kProblem, config.error().message,
            "`evalcar init -` prints every key with its default and meaning"};
  }
  settings = config->settings;
  std::string text = options.config_file.empty() ? "defaults" : options.config_file;
  for (const std::string& note : config->unit_notes) text += "; " + note;
  for (const std::string& warning : config->warnings) text += "; " + warning;
  return {"configuration", config->warnings.empty() ? Level::kOk : Level::kWarning, text};
}

std::string_view word_of(Level level) {
  return level == Level::kOk ? "ok" : level == Level::kWarning ? "warning" : "problem";
}

/// Databases that were damaged and lie aside: somebody should know, and may want to look at them.
Findings check_databases(const FileSystem& files, const config::Settings& settings) {
  std::vector<std::string> paths;
  if (const auto found = state::list_databases(files); found.has_value()) paths = *found;
  if (!settings.store.path.empty()) paths.push_back(settings.store.path);
  Findings findings;
  for (const std::string& path : paths) {
    const auto aside = state::damaged_files(files, path);
    if (!aside.has_value() || aside->empty()) continue;
    findings.push_back({"database", Level::kProblem,
                        path + " was damaged and made anew; the old one lies in " + aside->back(),
                        "check the disk, then delete that file"});
  }
  return findings;
}

/// Of several lines (commands to run, places that were looked at) the first, and the others below.
std::string indented(std::string_view text) {
  std::string lines;
  while (true) {
    const std::size_t end = text.find('\n');
    lines += printable(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    lines += "\n         ";
    text.remove_prefix(end + 1);
  }
}

void print(const Findings& findings, std::ostream& out) {
  for (const Finding& finding : findings) {
    const std::string_view word = finding.level == Level::kOk        ? "ok       "
                                  : finding.level == Level::kWarning ? "WARNING  "
                                                                     : "PROBLEM  ";
    out << word << finding.name << ": " << indented(finding.text) << '\n';
    if (!finding.mend.empty()) out << "         -> " << indented(finding.mend) << '\n';
  }
}

std::string json_of(const Findings& findings, bool well) {
  auto checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"check", finding.name},
                      {"ok", finding.level != Level::kProblem},
                      {"level", word_of(finding.level)},
                      {"text", finding.text}});
    if (!finding.mend.empty()) checks.back()["mend"] = finding.mend;
  }
  return nlohmann::ordered_json{{"ok", well}, {"checks", checks}}.dump(
      2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

int run_doctor(const DoctorOptions& options, FileSystem& files, const Clock& clock,
               std::ostream& out) {
  config::Settings settings;
  Findings findings;
  const auto add = [&findings](Findings more) {
    for (Finding& finding : more) findings.push_back(std::move(finding));
  };
  add({check_configuration(options, files, settings)});
  const bool configured = findings.front().level != Level::kProblem;
  add(check_machine(files, clock, settings.store));
  add(check_databases(files, settings));
  add(check_evaluator(files, clock, settings));
  if (configured) {
    for (const std::string& dir : settings.watch.output_dir) {
      add(check_output_directory(files, settings, dir));
    }
    add(check_tasks(files, clock, settings));
    add(check_api(files, settings.server));
  }
  if (!options.checkpoint.empty()) add(check_checkpoint(files, settings, options.checkpoint));
  if (!options.server.empty()) add(check_server(options.server));

  bool well = true;
  for (const Finding& finding : findings) well &= finding.level != Level::kProblem;
  if (options.json) {
    out << json_of(findings, well) << '\n';
  } else {
    print(findings, out);
  }
  return well ? kExitDone : kExitFailed;
}

}  // namespace evalcar::cli
