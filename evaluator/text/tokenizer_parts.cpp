#include "evaluator/text/tokenizer_parts.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/text/json_fields.h"

namespace evalcar::text {
namespace {

constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxSteps = 64;

struct Walk {
  std::string part;
  const char* list;
  std::vector<const nlohmann::json*> steps;

  Status add(const nlohmann::json& description, int depth) {
    if (depth > kMaxDepth || steps.size() >= kMaxSteps)
      return make_error(ErrorCode::kCorruption, part + " is nested too deep or too long");
    if (string_field(description, "type") != "Sequence") {
      steps.push_back(&description);
      return {};
    }
    const auto items = description.find(list);
    if (items == description.end() || !items->is_array())
      return make_error(ErrorCode::kCorruption, part + " Sequence without \"" + list + "\"");
    for (const auto& item : *items) EVALCAR_RETURN_IF_ERROR(add(item, depth + 1));
    return {};
  }
};

}  // namespace

Result<std::vector<const nlohmann::json*>> steps_of(const nlohmann::json& description,
                                                    const char* part, const char* list) {
  Walk walk{part, list, {}};
  EVALCAR_RETURN_IF_ERROR(walk.add(description, 0));
  return std::move(walk.steps);
}

Result<PatternText> pattern_of(const nlohmann::json& description, const char* part) {
  const std::string what = part;
  const auto pattern = description.find("pattern");
  if (pattern == description.end() || !pattern->is_object())
    return make_error(ErrorCode::kCorruption, what + " without a \"pattern\"");
  auto regex = string_field(*pattern, "Regex");
  auto literal = string_field(*pattern, "String");
  if (pattern->size() != 1 || (!regex && !literal))
    return make_error(ErrorCode::kCorruption, what + "'s pattern is neither Regex nor String");
  return PatternText{std::move(regex ? *regex : *literal), regex.has_value()};
}

}  // namespace evalcar::text
