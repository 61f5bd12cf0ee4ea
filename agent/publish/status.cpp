// status.json: what the sidecar does now.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/publish/publisher.h"
#include "agent/publish/utc.h"

namespace evalcar::publish {
namespace {

using Json = nlohmann::ordered_json;
using state::Evaluation;

Json agent_json(const std::optional<AgentFacts>& agent) {
  if (!agent.has_value()) return nullptr;
  Json json = Json::object();
  json["pid"] = agent->pid;
  json["version"] = agent->version;
  json["uptime_s"] = agent->uptime_s;
  if (!agent->device.empty()) json["device"] = agent->device;
  if (!agent->warning.empty()) json["warning"] = agent->warning;
  if (agent->watching.has_value()) {
    const WatchFacts& watching = *agent->watching;
    json["watching"] = {{"file_system", watching.file_system},
                        {"mode", watching.mode},
                        {"poll_interval_s", watching.poll_interval_s}};
    if (!watching.trouble.empty()) json["watching"]["trouble"] = watching.trouble;
  }
  return json;
}

Json evaluation_json(const Evaluation& evaluation) {
  Json json = Json::object();
  json["step"] = evaluation.step;
  json["checkpoint_type"] = evaluation.kind;
  json["state"] = state::state_name(evaluation.state);
  json["reason"] = evaluation.reason.empty() ? Json(nullptr) : Json(evaluation.reason);
  json["progress"] = evaluation.progress();
  json["run"] = evaluation.run;
  json["checkpoint"] = evaluation.checkpoint;
  json["generation"] = evaluation.generation;
  json["evaluation_id"] = evaluation.id;
  json["tasks"] = evaluation.settings.tasks;
  json["stage"] = evaluation.stage.empty() ? Json(nullptr) : Json(evaluation.stage);
  json["attempts"] = evaluation.attempts;
  if (!evaluation.next_try_at.empty()) json["next_try_at"] = evaluation.next_try_at;
  if (!evaluation.weights_sha256.empty()) json["weights_sha256"] = evaluation.weights_sha256;
  json["updated_at"] = evaluation.updated_at;
  return json;
}

/// The newest step that is still asked about: its folder is there, or its evaluation goes on (a
/// lease outlives the folder).
Result<std::optional<std::int64_t>> newest_step(const state::Reader& reader,
                                                std::optional<std::int64_t> run_id,
                                                const std::optional<AgentFacts>& agent,
                                                const std::vector<Evaluation>& evaluations) {
  std::optional<std::int64_t> newest = agent.has_value() ? agent->latest_step : std::nullopt;
  const auto note = [&newest](std::int64_t step) {
    newest = std::max(newest.value_or(step), step);
  };
  for (const Evaluation& evaluation : evaluations) {
    if (!state::is_end_state(evaluation.state)) note(evaluation.step);
  }
  if (!run_id.has_value()) return newest;
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, reader.checkpoints(*run_id));
  for (const state::Checkpoint& checkpoint : checkpoints) {
    if (checkpoint.gone_at.empty()) note(checkpoint.step);
  }
  return newest;
}

/// The newest step up to `newest` with a number (the trainer may have gone back); 0 before the
/// first.
std::int64_t newest_number(std::int64_t newest, const std::vector<Evaluation>& evaluations) {
  std::int64_t done = 0;
  for (const Evaluation& evaluation : evaluations) {
    const bool counts =
        evaluation.state == state::EvaluationState::kPublished && evaluation.step <= newest;
    if (counts) done = std::max(done, evaluation.step);
  }
  return done;
}

/// How long the oldest evaluation has been known that waits beyond the newest number.
double lag_seconds(std::int64_t number, const std::vector<Evaluation>& evaluations, WallTime now) {
  WallTime oldest = now;
  for (const Evaluation& evaluation : evaluations) {
    if (state::is_end_state(evaluation.state) || evaluation.step <= number) continue;
    oldest = std::min(oldest, parse_utc(evaluation.created_at));
  }
  return std::chrono::duration<double>(now - oldest).count();
}

}  // namespace

std::string empty_status_json(const Clock& clock) {
  const Json root = {{"agent", nullptr},
                     {"evaluations", Json::array()},
                     {"lag_steps", nullptr},
                     {"lag_seconds", nullptr},
                     {"time", format_utc(clock.wall_now())}};
  return root.dump(2) + "\n";
}

Result<std::string> status_json(const state::Reader& reader, const Clock& clock,
                                std::optional<std::int64_t> run_id,
                                const std::optional<AgentFacts>& agent) {
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  EVALCAR_ASSIGN_OR_RETURN(const auto evaluations, reader.evaluations(filter));
  Json list = Json::array();
  EVALCAR_ASSIGN_OR_RETURN(const auto flags, reader.flags(run_id));
  for (const Evaluation& evaluation : evaluations) {
    list.push_back(evaluation_json(evaluation));
    if (const auto doubts = flags.find(evaluation.id); doubts != flags.end()) {
      list.back()["flags"] = doubts->second;
    }
  }
  Json root = Json::object();
  root["agent"] = agent_json(agent);
  root["evaluations"] = std::move(list);
  EVALCAR_ASSIGN_OR_RETURN(const auto newest, newest_step(reader, run_id, agent, evaluations));
  const bool unknown = evaluations.empty() && !newest.has_value();
  const std::int64_t number = newest.has_value() ? newest_number(*newest, evaluations) : 0;
  root["lag_steps"] = unknown ? Json(nullptr) : Json(newest.has_value() ? *newest - number : 0);
  root["lag_seconds"] =
      unknown ? Json(nullptr) : Json(lag_seconds(number, evaluations, clock.wall_now()));
  root["time"] = format_utc(clock.wall_now());
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_status(FileSystem& files, const state::Reader& reader, const Clock& clock,
                    const std::string& path, std::optional<std::int64_t> run_id,
                    const AgentFacts& agent) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string json, status_json(reader, clock, run_id, agent));
  return write_file_atomically(files, path, json);
}

}  // namespace evalcar::publish
