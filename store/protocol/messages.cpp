#include "store/protocol/messages.h"

#include <nlohmann/json.hpp>
#include <type_traits>

#include "store/protocol/message_json.h"
#include "store/protocol/picture_name.h"

namespace evalcar::protocol {
namespace {

Error bad_line(std::string_view why) {
  return make_error(ErrorCode::kCorruption, "protocol: " + std::string(why));
}

template <typename T>
Result<T> read_object(const Json& json) {
  T message;
  Reader reader(json);
  visit(reader, message);
  if (!reader.problem().empty()) return bad_line(reader.problem());
  return message;
}

template <typename T>
Status check(const T&) {
  return {};
}
/// Its names become parts of paths.
Status check(const Scored& scored) {
  if (scored.pictures.size() > kMostSamplePictures) {
    return bad_line("field \"pictures\": " + std::to_string(scored.pictures.size()) +
                    " names, expected at most " + std::to_string(kMostSamplePictures));
  }
  for (const std::string& name : scored.pictures) {
    if (is_sample_picture_name(name)) continue;
    return bad_line("field \"pictures\": expected names of 64 hexadecimal digits and .jpg");
  }
  return {};
}

template <std::size_t I = 0>
Result<Message> read_message(std::string_view type, const Json& json) {
  if constexpr (I == std::variant_size_v<Message>) {
    return bad_line("unknown message type \"" + std::string(type.substr(0, 40)) + "\"");
  } else {
    using T = std::variant_alternative_t<I, Message>;
    if (type != type_name<T>()) return read_message<I + 1>(type, json);
    EVALCAR_ASSIGN_OR_RETURN(T message, read_object<T>(json));
    EVALCAR_RETURN_IF_ERROR(check(message));
    return Message(std::move(message));
  }
}

Result<Json> parse_object(std::string_view text) {
  // Depth is bounded here, before nlohmann builds (and recursively destroys) a tree of any depth.
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > 16) return bad_line("nested deeper than 16");
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return bad_line("not a JSON object");
  return json;
}

}  // namespace

bool is_of_surroundings(std::string_view kind) {
  return kind == kNoDevice || kind == kNoEvaluator || kind == kData || kind == kDeviceLost ||
         kind == kDeviceBusy || kind == error_code_name(ErrorCode::kInvalidArgument);
}

bool is_device_fault(std::string_view kind) { return kind == kDeviceFault || kind == kDeviceLost; }

std::string encode(const Message& message) {
  return std::visit(
      [](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        Writer writer;
        visit(writer, const_cast<T&>(m));
        Json json = writer.take();
        json["type"] = type_name<T>();
        return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
      },
      message);
}

Result<Message> decode(std::string_view line) {
  if (line.size() > kMaxLineBytes)
    return bad_line("a line of " + std::to_string(line.size()) + " bytes");
  EVALCAR_ASSIGN_OR_RETURN(const Json json, parse_object(line));
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) return bad_line("field \"type\" is missing");
  return read_message(type->get_ref<const std::string&>(), json);
}

std::string encode_settings(const EvaluationSettings& settings) {
  Writer writer;
  visit(writer, const_cast<EvaluationSettings&>(settings));
  return writer.take().dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<EvaluationSettings> decode_settings(std::string_view json) {
  EVALCAR_ASSIGN_OR_RETURN(const Json object, parse_object(json));
  return read_object<EvaluationSettings>(object);
}

}  // namespace evalcar::protocol
