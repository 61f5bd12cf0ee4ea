#include "evaluator/service/wrapper.h"

#include <optional>
#include <utility>

namespace evalcar::service {
namespace {

constexpr std::int64_t kHuggingfaceTokens = 4096;
constexpr std::int64_t kLlavaHfTokens = 1024;

/// A limit that the user set.
std::optional<std::int64_t> own_limit(std::int64_t value, std::int64_t by_default,
                                      std::int64_t is_set) {
  return value == by_default && is_set == 0 ? std::nullopt : std::optional(value);
}

}  // namespace

std::vector<text::Message> Wrapper::wrapped(std::vector<text::Message> messages) const {
  if (!system_prompt.empty())
    messages.insert(messages.begin(), {"system", {{text::Content::Type::kText, system_prompt}}});
  return messages;
}

vision::PixelRule Wrapper::pixels(const protocol::EvaluationSettings& settings,
                                  const engine::LoadedWeights& weights) const {
  if (sizing == vision::Sizing::kUtilsThenProcessor)
    return {.sizing = sizing, .min_pixels = settings.min_pixels, .max_pixels = settings.max_pixels};
  const protocol::EvaluationSettings defaults;
  return {
      .sizing = sizing,
      .min_pixels = own_limit(settings.min_pixels, defaults.min_pixels, settings.min_pixels_set),
      .max_pixels = own_limit(settings.max_pixels, defaults.max_pixels, settings.max_pixels_set),
      .patch_size = weights.vision_patch_size};
}

Wrapper wrapper_of(const engine::LoadedWeights& weights) {
  if (weights.architecture == "qwen2_5_vl") return {};
  if (weights.architecture == "qwen3_vl")
    return {.system_prompt = "You are a helpful assistant.",
            .sizing = vision::Sizing::kUtils,
            .draws = Draws::kHandsOverGiven};
  if (weights.architecture == "llava_onevision")
    return {.most_tokens = kLlavaHfTokens,
            .sizing = vision::Sizing::kAnyres,
            .draws = Draws::kHandsOverTopP};
  return {
      .most_tokens = kHuggingfaceTokens,
      .sizing = vision::Sizing::kProcessor,
      .content = weights.reads_pictures() ? text::ContentForm::kParts : text::ContentForm::kText,
      .draws = Draws::kHandsOverTopP,
      .turn = tasks::FewShotTurn::kInOrder};
}

}  // namespace evalcar::service
