// status.json: what the sidecar does now.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/publish/publisher.h"

namespace evalcar::publish {
namespace {

using Json = nlohmann::ordered_json;

Json agent_json(const std::optional<AgentFacts>& agent) {
  if (!agent.has_value()) return nullptr;
  Json json = Json::object();
  json["pid"] = agent->pid;
  json["version"] = agent->version;
  json["uptime_s"] = agent->uptime_s;
  if (!agent->device.empty()) json["device"] = agent->device;
  if (!agent->warning.empty()) json["warning"] = agent->warning;
  return json;
}

Json evaluation_json(const state::Evaluation& evaluation) {
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

}  // namespace

Result<std::string> status_json(const state::Reader& reader, const Clock& clock,
                                std::optional<std::int64_t> run_id,
                                const std::optional<AgentFacts>& agent) {
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  EVALCAR_ASSIGN_OR_RETURN(const auto evaluations, reader.evaluations(filter));
  std::optional<std::int64_t> newest_seen = agent.has_value() ? agent->latest_step : std::nullopt;
  std::optional<std::int64_t> newest_done;
  Json list = Json::array();
  for (const state::Evaluation& evaluation : evaluations) {
    newest_seen = std::max(newest_seen.value_or(evaluation.step), evaluation.step);
    if (evaluation.state == state::EvaluationState::kPublished) {
      newest_done = std::max(newest_done.value_or(evaluation.step), evaluation.step);
    }
    list.push_back(evaluation_json(evaluation));
  }
  Json root = Json::object();
  root["agent"] = agent_json(agent);
  root["evaluations"] = std::move(list);
  // How far the newest checkpoint is ahead of the newest number; before the first, of the start.
  root["lag_steps"] =
      newest_seen.has_value() ? Json(*newest_seen - newest_done.value_or(0)) : Json(nullptr);
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
