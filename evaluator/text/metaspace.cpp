#include "evaluator/text/metaspace.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/text/json_fields.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {

Result<Metaspace> parse_metaspace(const nlohmann::json& description) {
  Metaspace result;
  const auto replacement = string_field(description, "replacement");
  if (!replacement || !is_one_character(*replacement))
    return make_error(ErrorCode::kCorruption, "Metaspace: \"replacement\" is no single character");
  result.replacement = *replacement;
  // Absent, and in files of tokenizers before 0.14, where add_prefix_space stood alone.
  const std::string scheme = description.contains("prepend_scheme")
                                 ? string_field(description, "prepend_scheme").value_or("")
                                 : "always";
  EVALCAR_ASSIGN_OR_RETURN(const bool prefixes,
                           checked_bool(description, "add_prefix_space", true));
  if (scheme == "first") {
    result.prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "never") {
    result.prepend = Metaspace::Prepend::kNever;
  } else if (scheme != "always") {
    return make_error(ErrorCode::kCorruption, "Metaspace: prepend_scheme \"" + scheme +
                                                  "\" is none of always, first, never");
  }
  if (!prefixes && result.prepend != Metaspace::Prepend::kNever)
    return make_error(
        ErrorCode::kCorruption,
        "Metaspace: add_prefix_space is false beside prepend_scheme \"" + scheme + "\"");
  EVALCAR_ASSIGN_OR_RETURN(result.splits, checked_bool(description, "split", true));
  return result;
}

}  // namespace evalcar::text
