#include "agent/cli/status_command.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/publish/status.h"
#include "agent/publish/table.h"
#include "store/base/timed_file_system.h"
#include "store/state/store.h"

namespace evalcar::cli {
namespace {

using nlohmann::json;

/// Values of a file that anybody may have written: the default where the type is another.
std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}
double number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

/// What the running agent said of itself in its heartbeat, if one runs.
std::optional<publish::AgentFacts> running_agent(const FileSystem& files, const std::string& db,
                                                 const std::optional<state::Run>& run) {
  const auto pid = state::Store::writer_pid(db);
  if (!pid.has_value()) return std::nullopt;
  publish::AgentFacts facts;
  facts.pid = *pid;
  std::vector<std::string> places;
  if (run.has_value()) places.push_back(join_path(run->output_dir, "_evalcar/status.json"));
  // Until there is a checkpoint, and where publish.dir names another folder.
  places.push_back(db + ".status.json");
  for (const std::string& place : places) {
    const auto text = read_file(files, place, std::uint64_t{64} << 20U);
    if (!text.has_value()) continue;
    const json status = json::parse(*text, nullptr, false);
    if (!status.is_object() || !status.contains("agent") || !status["agent"].is_object()) continue;
    const json& agent = status["agent"];
    if (number_of(agent, "pid") != static_cast<double>(*pid)) continue;  // of an agent that is gone
    facts.version = text_of(agent, "version");
    facts.uptime_s = number_of(agent, "uptime_s");
    facts.device = text_of(agent, "device");
    facts.warning = text_of(agent, "warning");
    if (agent.contains("watching") && agent["watching"].is_object()) {
      const json& watching = agent["watching"];
      facts.watching = {text_of(watching, "file_system"), text_of(watching, "mode"),
                        number_of(watching, "poll_interval_s"), text_of(watching, "trouble")};
    }
    break;
  }
  return facts;
}

std::string percent(double progress) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.0f%%", 100 * progress);
  return text.data();
}

void print_for_people(const std::string& document, const std::string& db, std::ostream& out) {
  const json status = json::parse(document);
  if (status["agent"].is_null()) {
    out << "agent: not running (database " << db << ")\n";
  } else {
    const json& agent = status["agent"];
    out << "agent: pid " << agent["pid"] << ", version " << agent["version"].get<std::string>()
        << ", up " << static_cast<std::int64_t>(agent["uptime_s"].get<double>()) << " s";
    if (agent.contains("device")) out << ", on " << agent["device"].get<std::string>();
    out << "\n";
    if (agent.contains("warning"))
      out << "warning: " << agent["warning"].get<std::string>() << "\n";
    if (agent.contains("watching") && agent["watching"].contains("trouble")) {
      out << "watching by " << agent["watching"]["mode"].get<std::string>() << ": "
          << agent["watching"]["trouble"].get<std::string>() << "\n";
    }
  }
  if (status["lag_steps"].is_number()) out << "lag: " << status["lag_steps"] << " steps\n";
  std::vector<std::vector<std::string>> rows;
  for (const json& evaluation : status["evaluations"]) {
    std::string tasks;
    for (const json& task : evaluation["tasks"]) {
      tasks += (tasks.empty() ? "" : ",") + task.get<std::string>();
    }
    rows.push_back({evaluation["step"].dump(), evaluation["checkpoint_type"].get<std::string>(),
                    evaluation["state"].get<std::string>(),
                    percent(evaluation["progress"].get<double>()), tasks,
                    evaluation["reason"].is_null() ? "" : evaluation["reason"].get<std::string>()});
  }
  if (rows.empty()) {
    out << "no evaluations yet\n";
    return;
  }
  out << publish::markdown_table({"Step", "Weights", "State", "Progress", "Tasks", "Reason"}, rows,
                                 {true, false, false, true, false, false});
}

/// Does not wait for an output directory whose file system hangs: that is when people ask.
Status print_status(const StatusOptions& options, FileSystem& disk, const Clock& clock,
                    std::ostream& out) {
  TimedFileSystem files(disk);
  files.guard(options.database.output_dir);
  EVALCAR_ASSIGN_OR_RETURN(const std::string path, choose_database(files, options.database));
  EVALCAR_ASSIGN_OR_RETURN(const state::Reader reader, state::Reader::open(path));
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  std::optional<state::Run> run;
  if (!runs.empty()) run = runs.back();
  if (run.has_value()) files.guard(run->output_dir);
  const auto run_id = run.has_value() ? std::optional<std::int64_t>(run->id) : std::nullopt;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string document,
      publish::status_json(reader, clock, run_id, running_agent(files, path, run)));
  if (options.json) {
    out << document;
  } else {
    print_for_people(document, path, out);
  }
  return {};
}

}  // namespace

int run_status(const StatusOptions& options, FileSystem& files, const Clock& clock,
               std::ostream& out, std::ostream& err) {
  const Status printed = print_status(options, files, clock, out);
  if (printed.has_value()) return 0;
  err << "evalcar status: " << printed.error().message << "\n";
  if (printed.error().code == ErrorCode::kInvalidArgument) return 2;
  if (printed.error().code != ErrorCode::kNotFound) return 1;
  // One document in any case, also where there is nothing yet.
  if (options.json) out << publish::empty_status_json(clock);
  return 3;
}

}  // namespace evalcar::cli
