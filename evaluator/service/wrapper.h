// How lmms-eval 0.7.3 asks a model of this family: what its wrapper adds to the task's prompt, who
// resizes the pictures, and what it generates at most.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/tasks/few_shot.h"
#include "evaluator/text/chat_template.h"
#include "evaluator/vision/prepare.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// Whose top_k and top_p count where answers are drawn. What a wrapper hands to transformers'
/// generate() counts, None too; for what it leaves out generation_config.json's value does, else
/// transformers' own: 50 and 1.
enum class Draws {
  kHandsOverBoth,   ///< those of the task or the user, or None
  kHandsOverGiven,  ///< only those that the task or the user gives
  kHandsOverTopP,   ///< top_p, or None; top_k is never the task's
};

struct Wrapper {
  std::int64_t most_tokens = 128;  ///< of an answer, where neither task nor user say
  std::string system_prompt;       ///< put before the task's messages; empty: the template's own
  vision::Sizing sizing = vision::Sizing::kUtilsThenProcessor;
  text::ContentForm content = text::ContentForm::kParts;
  Draws draws = Draws::kHandsOverBoth;
  /// In which order it asks for the prompts, of which the examples in them depend.
  tasks::FewShotTurn turn = tasks::FewShotTurn::kByInput;

  /// The task's messages as the wrapper hands them to the template.
  std::vector<text::Message> wrapped(std::vector<text::Message> messages) const;
  /// Who resizes, within the user's limits. A limit that nobody set (the configuration's
  /// default) is without effect, but for qwen2_5_vl, whose wrapper has the same default.
  vision::PixelRule pixels(const protocol::EvaluationSettings& settings,
                           const engine::LoadedWeights& weights) const;
};

/// The chat wrapper that is called protocol::wrapper_name() of the family.
Wrapper wrapper_of(const engine::LoadedWeights& weights);

}  // namespace evalcar::service
