#include "evaluator/text/normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/text/json_fields.h"
#include "evaluator/text/tokenizer_parts.h"

namespace evalcar::text {
namespace {

// Of all prefixes together: each stretch of a text between special tokens gets them.
constexpr std::size_t kMaxPrefixBytes = 16;

}  // namespace

Result<Normalizer> Normalizer::parse(const nlohmann::json& description) {
  Normalizer result;
  if (description.is_null()) return result;
  EVALCAR_ASSIGN_OR_RETURN(const auto steps, steps_of(description, "normalizer", "normalizers"));
  for (const nlohmann::json* const step : steps) EVALCAR_RETURN_IF_ERROR(result.add(*step));
  return result;
}

Status Normalizer::add(const nlohmann::json& description) {
  const std::string type = string_field(description, "type").value_or("");
  if (type == "NFC" || type == "NFD") {
    steps_.emplace_back(type == "NFC" ? NormalForm::kNfc : NormalForm::kNfd);
    return {};
  }
  if (type == "Prepend") {
    auto prefix = string_field(description, "prepend");
    if (!prefix)
      return make_error(ErrorCode::kCorruption, "normalizer Prepend without \"prepend\"");
    prefix_bytes_ += prefix->size();
    if (prefix->empty() || prefix_bytes_ > kMaxPrefixBytes)
      return make_error(ErrorCode::kUnsupported, "normalizer Prepend of nothing, or of more than " +
                                                     std::to_string(kMaxPrefixBytes) +
                                                     " bytes, is not supported");
    steps_.emplace_back(Prefix{std::move(*prefix)});
    return {};
  }
  if (type == "Replace") {
    auto replacement = Replacement::parse(description);
    if (!replacement) return with_context(std::move(replacement).error(), "normalizer");
    growth_ *= std::min(replacement->growth(), kMostGrowth + 1);
    if (growth_ > kMostGrowth)
      return make_error(ErrorCode::kUnsupported, "normalizer Replace makes a text more than " +
                                                     std::to_string(kMostGrowth) +
                                                     " times as long, which is not supported");
    steps_.emplace_back(std::move(replacement).value());
    return {};
  }
  return make_error(ErrorCode::kUnsupported,
                    "normalizer type \"" + type +
                        "\" is not supported (Sequence, NFC, NFD, Prepend and Replace are)");
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    if (const auto* form = std::get_if<NormalForm>(&step)) {
      EVALCAR_ASSIGN_OR_RETURN(result, normalize(result, *form));
    } else if (const auto* prefix = std::get_if<Prefix>(&step)) {
      if (!result.empty()) result.insert(0, prefix->text);
    } else {
      EVALCAR_ASSIGN_OR_RETURN(result, std::get<Replacement>(step).apply(result));
    }
  }
  return result;
}

}  // namespace evalcar::text
