#include "agent/request/request.h"

#include <array>
#include <nlohmann/json.hpp>

namespace evalcar::request {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::array<std::string_view, 3> kOutcomes = {"done", "nothing", "failed"};

Error not_understood(const std::string& why) {
  return make_error(ErrorCode::kInvalidArgument, why);
}

Result<Json> parse_object(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return not_understood("not a JSON object");
  const auto version = json.find("version");
  if (version == json.end() || !version->is_number_integer()) {
    return not_understood("no \"version\"");
  }
  if (*version != kVersion) {
    return not_understood("version " + version->dump() + ", expected " + std::to_string(kVersion) +
                          ": the agent and the command are of different builds");
  }
  return json;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Json encode_fields(const Retry& retry) { return Json{{"request", "retry"}, {"step", retry.step}}; }

}  // namespace

std::string folder_of(const std::string& database) { return database + ".requests"; }

std::string encode(const Request& request) {
  Json json = std::visit([](const auto& one) { return encode_fields(one); }, request);
  json["version"] = kVersion;
  return json.dump() + "\n";
}

std::string encode(const Answer& answer) {
  const Json json = {{"version", kVersion},
                     {"outcome", kOutcomes.at(static_cast<std::size_t>(answer.outcome))},
                     {"text", answer.text}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Request> decode_request(std::string_view text) {
  EVALCAR_ASSIGN_OR_RETURN(const Json json, parse_object(text));
  const std::string kind = text_of(json, "request");
  if (kind != "retry") {
    return not_understood("\"request\" is none that this version knows (retry)");
  }
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_unsigned() ||
      step->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return not_understood("\"step\" is not a whole number from 0 on");
  }
  return Request{Retry{step->get<std::int64_t>()}};
}

Result<Answer> decode_answer(std::string_view text) {
  EVALCAR_ASSIGN_OR_RETURN(const Json json, parse_object(text));
  const std::string outcome = text_of(json, "outcome");
  for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
    if (outcome == kOutcomes.at(i)) return Answer{static_cast<Outcome>(i), text_of(json, "text")};
  }
  return not_understood("\"outcome\" is none of done, nothing, failed");
}

}  // namespace evalcar::request
