#include "agent/cli/status_command.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/publish/prometheus.h"
#include "agent/publish/status.h"
#include "agent/publish/table.h"
#include "agent/report/pace.h"
#include "store/base/text.h"
#include "store/base/timed_file_system.h"
#include "store/checkpoint/home_place.h"
#include "store/state/store.h"

namespace evalcar::cli {
namespace {

using Json = nlohmann::json;

/// Values of a file that anybody may have written: the default where the type is another.
std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}
double number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

std::optional<double> optional_number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}
std::int64_t integer_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

publish::CurrentFacts current_of(const Json& current) {
  publish::CurrentFacts facts;
  facts.evaluation_id = integer_of(current, "evaluation_id");
  facts.step = integer_of(current, "step");
  facts.checkpoint_type = text_of(current, "checkpoint_type");
  facts.work.stage = text_of(current, "stage");
  facts.work.task = text_of(current, "task");
  facts.work.done = integer_of(current, "done");
  facts.work.total = integer_of(current, "total");
  facts.work.per_second = optional_number(current, "per_second");
  facts.work.seconds_left = optional_number(current, "seconds_left");
  return facts;
}

/// What the running agent said of itself in its heartbeat, if one runs.
std::optional<publish::AgentFacts> running_agent(const FileSystem& files, const std::string& db,
                                                 const std::optional<state::Run>& run) {
  const auto pid = state::Store::writer_pid(db);
  if (!pid.has_value()) return std::nullopt;
  publish::AgentFacts facts;
  facts.pid = *pid;
  std::vector<std::string> places;
  if (run.has_value()) {
    const auto home = checkpoint::home_place(files, run->output_dir, "");
    places.push_back(join_path(home.path, "status.json"));
  }
  // Until there is a checkpoint, and where publish.dir names another folder.
  places.push_back(db + ".status.json");
  for (const std::string& place : places) {
    const auto text = read_file(files, place, std::uint64_t{64} << 20U);
    if (!text.has_value()) continue;
    const Json status = Json::parse(*text, nullptr, false);
    if (!status.is_object() || !status.contains("agent") || !status["agent"].is_object()) continue;
    const Json& agent = status["agent"];
    if (number_of(agent, "pid") != static_cast<double>(*pid)) continue;  // of an agent that is gone
    facts.version = text_of(agent, "version");
    facts.uptime_s = number_of(agent, "uptime_s");
    facts.device = text_of(agent, "device");
    facts.warning = text_of(agent, "warning");
    if (agent.contains("watching") && agent["watching"].is_object()) {
      const Json& watching = agent["watching"];
      facts.watching = {text_of(watching, "file_system"), text_of(watching, "mode"),
                        number_of(watching, "poll_interval_s"), text_of(watching, "trouble")};
    }
    if (agent.contains("current") && agent["current"].is_object()) {
      facts.current = current_of(agent["current"]);
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

std::string joined(const Json& texts) {
  std::string text;
  for (const Json& item : texts) text += (text.empty() ? "" : ",") + item.get<std::string>();
  return text;
}

void print_agent(const Json& agent, const std::string& db, std::ostream& out) {
  if (agent.is_null()) {
    out << "agent: not running (database " << db << ")\n";
    return;
  }
  out << "agent: pid " << agent["pid"] << ", version " << agent["version"].get<std::string>()
      << ", up " << report::duration_text(agent["uptime_s"].get<double>());
  if (agent.contains("device")) out << ", on " << agent["device"].get<std::string>();
  out << " (database " << db << ")\n";
  if (agent.contains("warning")) out << "warning: " << agent["warning"].get<std::string>() << "\n";
  if (agent.contains("watching") && agent["watching"].contains("trouble")) {
    out << "watching by " << agent["watching"]["mode"].get<std::string>() << ": "
        << agent["watching"]["trouble"].get<std::string>() << "\n";
  }
}

void print_current(const Json& agent, bool bars, std::ostream& out) {
  if (agent.is_null() || !agent.contains("current")) return;
  const publish::CurrentFacts current = current_of(agent["current"]);
  out << "now: step " << current.step << " " << printable(current.checkpoint_type) << ": "
      << printable(report::work_text(current.work, bars)) << "\n";
}

/// "lag: 40 steps, 3 min 5 s".
void print_lag(const Json& status, std::ostream& out) {
  if (!status["lag_steps"].is_number()) return;
  out << "lag: " << status["lag_steps"] << " steps";
  const Json& seconds = status["lag_seconds"];
  if (seconds.is_number() && seconds.get<double>() >= 1) {
    out << ", " << report::duration_text(seconds.get<double>());
  }
  out << "\n";
}

/// What waits and runs, what failed, and what ended: people ask in this order.
enum class Part { kOpen, kFailed, kEnded };
constexpr std::size_t kShownEnded = 20;

Part part_of(const Json& evaluation) {
  const auto state = state::state_from_name(evaluation["state"].get<std::string>());
  if (state == state::EvaluationState::kFailed || state == state::EvaluationState::kQuarantined) {
    return Part::kFailed;
  }
  return state.has_value() && state::is_end_state(*state) ? Part::kEnded : Part::kOpen;
}

void print_part(const Json& evaluations, Part part, const char* title, std::ostream& out) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& evaluation : evaluations) {
    if (part_of(evaluation) != part) continue;
    std::string reason = text_of(evaluation, "reason");
    if (const std::string next = text_of(evaluation, "next_try_at"); !next.empty()) {
      reason += (reason.empty() ? "" : "; ") + std::string("next try at ") + next;
    }
    rows.push_back({evaluation["step"].dump(), evaluation["checkpoint_type"].get<std::string>(),
                    evaluation["state"].get<std::string>(),
                    percent(evaluation["progress"].get<double>()), joined(evaluation["tasks"]),
                    reason});
  }
  if (rows.empty()) return;
  out << "\n" << title << ": " << rows.size();
  if (part == Part::kEnded && rows.size() > kShownEnded) {
    out << ", the last " << kShownEnded << " of them (--json lists all)";
    rows.erase(rows.begin(), rows.end() - kShownEnded);
  }
  out << "\n"
      << publish::markdown_table({"Step", "Weights", "State", "Progress", "Tasks", "Reason"}, rows,
                                 {true, false, false, true, false, false});
}

void print_for_people(const std::string& document, const std::string& db, bool bars,
                      std::ostream& out) {
  const Json status = Json::parse(document);
  print_agent(status["agent"], db, out);
  print_current(status["agent"], bars, out);
  print_lag(status, out);
  const Json& evaluations = status["evaluations"];
  if (evaluations.empty()) out << "no evaluations yet\n";
  print_part(evaluations, Part::kOpen, "queue", out);
  print_part(evaluations, Part::kFailed, "failed", out);
  print_part(evaluations, Part::kEnded, "ended", out);
}

/// Its folder is asked with patience only for a moment from now on.
Result<std::optional<state::Run>> newest_run(const state::Reader& reader, TimedFileSystem& files) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  if (runs.empty()) return std::optional<state::Run>();
  files.guard(runs.back().output_dir);
  return std::optional(runs.back());
}

/// A database that cannot be read is a number, too, and no failure of the command: whoever keeps
/// the text of the last one that went well would never see it.
Status print_prometheus(TimedFileSystem& files, const std::string& path, const Clock& clock,
                        std::ostream& out, std::ostream& err) {
  const auto cannot_read = [&err](const Error& why) {
    err << "evalcar status: " << why.message << "\n";
  };
  const auto reader = state::Reader::open(path);
  if (!reader.has_value()) cannot_read(reader.error());
  std::optional<state::Run> run;
  if (reader.has_value()) run = newest_run(*reader, files).value_or(std::nullopt);
  out << publish::prometheus_text({{.reader = reader.has_value() ? &*reader : nullptr,
                                    .agent = running_agent(files, path, run),
                                    .run = run.has_value() ? run->name : "",
                                    .database = path,
                                    .failed = cannot_read}},
                                  clock);
  return {};
}

/// Does not wait for an output directory whose file system hangs: that is when people ask.
Status print_status(const StatusOptions& options, FileSystem& disk, const Clock& clock,
                    std::ostream& out, std::ostream& err) {
  TimedFileSystem files(disk);
  files.guard(options.database.output_dir);
  EVALCAR_ASSIGN_OR_RETURN(const std::string path, choose_database(files, options.database));
  if (options.prometheus) return print_prometheus(files, path, clock, out, err);
  EVALCAR_ASSIGN_OR_RETURN(const state::Reader reader, state::Reader::open(path));
  EVALCAR_ASSIGN_OR_RETURN(const auto run, newest_run(reader, files));
  const auto run_id = run.has_value() ? std::optional<std::int64_t>(run->id) : std::nullopt;
  const auto agent = running_agent(files, path, run);
  EVALCAR_ASSIGN_OR_RETURN(const std::string document,
                           publish::status_json(reader, clock, run_id, agent));
  if (options.json) {
    out << document;
  } else {
    print_for_people(document, path, options.bars, out);
  }
  return {};
}

}  // namespace

int run_status(const StatusOptions& options, FileSystem& files, const Clock& clock,
               std::ostream& out, std::ostream& err) {
  const Status printed = print_status(options, files, clock, out, err);
  if (printed.has_value()) return 0;
  err << "evalcar status: " << printed.error().message << "\n";
  if (printed.error().code == ErrorCode::kInvalidArgument) return 2;
  if (printed.error().code != ErrorCode::kNotFound) return 1;
  // One document in any case, also where there is nothing yet.
  if (options.json) out << publish::empty_status_json(clock);
  return 3;
}

}  // namespace evalcar::cli
