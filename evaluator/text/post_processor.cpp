#include "evaluator/text/post_processor.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "evaluator/text/json_fields.h"

namespace evalcar::text {
namespace {

constexpr std::size_t kMaxIds = 64;  // templates hold one or two

Error unsupported(const std::string& what) {
  return make_error(ErrorCode::kUnsupported, "post_processor " + what + " is not supported");
}

Error corrupt(const std::string& what) {
  return make_error(ErrorCode::kCorruption, "post_processor: TemplateProcessing: " + what);
}

// The ids of {"<bos>": {"id": "<bos>", "ids": [1], "tokens": ["<bos>"]}} under the name.
Status append_special(const nlohmann::json& description, const std::string& name,
                      std::vector<std::int32_t>& out) {
  const auto table = description.find("special_tokens");
  if (table == description.end() || !table->is_object() || !table->contains(name))
    return corrupt("\"" + name + "\" is not in its special_tokens");
  const auto& token = (*table)[name];
  const auto ids = token.is_object() ? token.find("ids") : token.end();
  if (!token.is_object() || ids == token.end() || !ids->is_array())
    return corrupt("special_tokens: \"" + name + "\" has no list \"ids\"");
  if (ids->size() > kMaxIds - out.size())
    return corrupt("more than " + std::to_string(kMaxIds) + " ids");
  for (const auto& id : *ids) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max())
      return corrupt("special_tokens: \"" + name + "\" has an id that is no id");
    out.push_back(id.get<std::int32_t>());
  }
  return {};
}

Status read_template(const nlohmann::json& description, Surroundings& out) {
  const auto single = description.find("single");
  if (single == description.end() || !single->is_array())
    return corrupt("\"single\" is not a list of pieces");
  bool text_seen = false;
  for (const auto& piece : *single) {
    const auto special = piece.is_object() ? piece.find("SpecialToken") : piece.end();
    const auto sequence = piece.is_object() ? piece.find("Sequence") : piece.end();
    if (piece.is_object() && special != piece.end()) {
      const auto name = string_field(*special, "id");
      if (!name) return corrupt("a SpecialToken without \"id\"");
      EVALCAR_RETURN_IF_ERROR(
          append_special(description, *name, text_seen ? out.after : out.before));
    } else if (piece.is_object() && sequence != piece.end()) {
      if (text_seen || string_field(*sequence, "id") != "A")
        return unsupported("TemplateProcessing whose \"single\" is not one text");
      text_seen = true;
    } else {
      return corrupt("a piece of \"single\" is neither SpecialToken nor Sequence");
    }
  }
  if (!text_seen) return unsupported("TemplateProcessing whose \"single\" is not one text");
  return {};
}

}  // namespace

Result<Surroundings> read_post_processor(const nlohmann::json& description) {
  Surroundings result;
  bool template_seen = false;
  const auto read_one = [&](const nlohmann::json& processor) -> Status {
    const std::string type = string_field(processor, "type").value_or("");
    if (type == "ByteLevel") return {};
    if (type != "TemplateProcessing") {
      return unsupported("type \"" + type +
                         "\" (ByteLevel, TemplateProcessing and a Sequence of them are)");
    }
    if (template_seen) return unsupported("Sequence of two TemplateProcessing");
    template_seen = true;
    return read_template(processor, result);
  };
  if (description.is_null()) return result;
  if (string_field(description, "type") == "Sequence") {
    const auto list = description.find("processors");
    if (list == description.end() || !list->is_array())
      return make_error(ErrorCode::kCorruption,
                        "post_processor: a Sequence without \"processors\"");
    for (const auto& processor : *list) EVALCAR_RETURN_IF_ERROR(read_one(processor));
  } else {
    EVALCAR_RETURN_IF_ERROR(read_one(description));
  }
  return result;
}

}  // namespace evalcar::text
