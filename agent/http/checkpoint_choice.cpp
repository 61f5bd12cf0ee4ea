#include "agent/http/checkpoint_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace evalcar::http {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMostAsked = 4;  ///< folders of one request that a database is asked about
constexpr std::string_view kCheckpointKeys[] = {"pretrained", "model", "model_path"};

/// Which folder the request is about.
class CheckpointChoice {
 public:
  CheckpointChoice(const CheckpointPlaces& places, const KnowsCheckpoint& knows,
                   const std::string& kind)
      : places_(places), knows_(knows), kind_(kind) {}

  /// What the trainer itself says that it saved: it may lie nowhere else.
  void consider_saved(const OrderedJson& value) {
    consider(value);
    saved_refused_ = refused_.has_value();
  }
  /// A text that may name it. Names of models on a hub name no folder, and say nothing.
  void consider(const OrderedJson& value) {
    if (!value.is_string() || !is_path(value.get_ref<const std::string&>())) return;
    const auto folder = folder_of(value.get_ref<const std::string&>());
    if (folder.has_value()) {
      found_.insert(*folder);
    } else if (!refused_.has_value() || folder.error().code == ErrorCode::kUnsupported) {
      refused_ = folder.error();
    }
  }
  bool found() const { return !found_.empty(); }
  bool refused() const { return refused_.has_value(); }

  Result<std::string> result() const {
    if (refused_.has_value() && (found_.empty() || saved_refused_)) return *refused_;
    std::set<std::string> named = found_;
    named.insert(gone_.begin(), gone_.end());
    if (named.size() == 1) return *named.begin();
    if (named.empty()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "no checkpoint: name its folder in lmms_engine_kwargs.model_path, or in "
                        "model_args as pretrained, model or model_path");
    }
    std::string all;
    for (const std::string& folder : named) all.append(all.empty() ? "" : ", ").append(folder);
    return make_error(ErrorCode::kInvalidArgument, "different checkpoints are named: " + all);
  }

 private:
  /// Also one that retention has removed, if the agent knows it.
  Result<std::string> folder_of(const std::string& text) {
    auto folder = places_.find(text);
    const bool may_be_gone = !folder.has_value() && folder.error().code == ErrorCode::kNotFound;
    if (!may_be_gone || !knows_ || asked_ == kMostAsked) return folder;
    auto gone = places_.find_gone(text);
    if (!gone.has_value()) return folder;
    ++asked_;
    gone_.insert(*gone);
    EVALCAR_ASSIGN_OR_RETURN(const bool known, knows_(*gone, kind_));
    return known ? std::move(gone) : std::move(folder);
  }

  const CheckpointPlaces& places_;
  const KnowsCheckpoint& knows_;
  const std::string& kind_;
  int asked_ = 0;
  std::set<std::string> found_;
  std::set<std::string> gone_;  ///< checkpoints' places where nothing is, known or not
  std::optional<Error> refused_;
  bool saved_refused_ = false;
};

}  // namespace

bool names_a_checkpoint(std::string_view key) {
  return std::ranges::find(kCheckpointKeys, key) != std::end(kCheckpointKeys);
}

bool is_path(std::string_view text) {
  return text.starts_with('/') || text.starts_with('.') ||
         text.find("..") != std::string_view::npos;
}

bool leads_to(const CheckpointPlaces& places, std::string_view text,
              const std::string& checkpoint) {
  const auto found = places.find(text);
  if (found.has_value()) return *found == checkpoint;
  const auto gone = places.find_gone(text);
  return gone.has_value() && *gone == checkpoint;
}

Result<std::string> choose_checkpoint(const CheckpointPlaces& places, const KnowsCheckpoint& knows,
                                      const std::string& kind, const OrderedJson& model_args,
                                      const OrderedJson& engine_kwargs) {
  CheckpointChoice choice(places, knows, kind);
  if (engine_kwargs.contains("model_path")) choice.consider_saved(engine_kwargs["model_path"]);
  for (const std::string_view key : kCheckpointKeys) {
    if (model_args.contains(key)) choice.consider(model_args[key]);
  }
  if (choice.found() || choice.refused()) return choice.result();
  for (const auto& [key, value] : model_args.items()) choice.consider(value);
  return choice.result();
}

}  // namespace evalcar::http
