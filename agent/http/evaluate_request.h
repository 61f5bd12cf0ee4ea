// POST /evaluate: what lmms-eval's clients send becomes a plan of ours, or an answer that says why
// not.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "agent/http/checkpoint_choice.h"
#include "agent/http/checkpoint_place.h"
#include "agent/http/message.h"
#include "agent/request/desk.h"

namespace evalcar::http {

/// What requests are read against.
struct EvaluateRules {
  CheckpointPlaces checkpoints;
  std::vector<std::string> tasks;           ///< known names
  std::vector<std::string> few_shot_tasks;  ///< those of them that have examples by themselves
  /// What a request does not say is as configured; but limit and gen_kwargs are its own.
  protocol::EvaluationSettings configured;
  std::string dtype = "auto";
  double gpu_memory_utilization = 0.8;
  /// Whether the agent knows evaluations of this kind of weights of a checkpoint whose folder is
  /// gone: their numbers are there all the same. Null: it knows none.
  KnowsCheckpoint knows;
};

/// A request that can be carried out.
struct Wish {
  request::JobPlan plan;           ///< without its id
  std::string request;             ///< JSON: all its fields, with their defaults
  std::vector<std::string> notes;  ///< what of it has no effect here, and why
};

/// Asks the disk where the paths lead.
std::variant<Wish, Response> read_evaluate_request(const EvaluateRules& rules,
                                                   const nlohmann::ordered_json& body);

}  // namespace evalcar::http
