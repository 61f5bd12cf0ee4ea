// Which checkpoint a request is about.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "agent/http/checkpoint_place.h"

namespace evalcar::http {

/// Whether the agent knows evaluations of this kind of weights of a checkpoint whose folder is
/// gone.
using KnowsCheckpoint =
    std::function<Result<bool>(const std::string& checkpoint, const std::string& kind)>;

/// Of model_args: pretrained, model, model_path.
bool names_a_checkpoint(std::string_view key);

/// Whether a text is meant as a path, and no name of a model on a hub.
bool is_path(std::string_view text);

/// Whether a text names this checkpoint (a path of CheckpointPlaces), also where it is gone.
bool leads_to(const CheckpointPlaces& places, std::string_view text, const std::string& checkpoint);

/// The one that lmms_engine_kwargs.model_path and those keys of model_args name, else any text in
/// model_args; `knows`: null if it knows none. kInvalidArgument: none, or two different ones, also
/// where one of them is gone. A path beside it that could be none is passed over, but for
/// lmms_engine_kwargs.model_path: what a trainer says that it saved is meant, or nothing.
Result<std::string> choose_checkpoint(const CheckpointPlaces& places, const KnowsCheckpoint& knows,
                                      const std::string& kind,
                                      const nlohmann::ordered_json& model_args,
                                      const nlohmann::ordered_json& engine_kwargs);

}  // namespace evalcar::http
