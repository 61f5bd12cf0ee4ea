#include "agent/request/request.h"

#include <array>
#include <nlohmann/json.hpp>

namespace evalcar::request {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::array<std::string_view, 3> kOutcomes = {"done", "nothing", "failed"};

Error not_understood(const std::string& why) {
  return make_error(ErrorCode::kInvalidArgument, why);
}

Result<OrderedJson> parse_object(std::string_view text) {
  OrderedJson json = OrderedJson::parse(text, nullptr, false);
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

std::string text_of(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

OrderedJson encode_fields(const Retry& retry) {
  return OrderedJson{{"request", "retry"}, {"step", retry.step}};
}

OrderedJson encode_fields(const Backfill&) { return OrderedJson{{"request", "backfill"}}; }

OrderedJson encode_fields(const Cancel& cancel) {
  return OrderedJson{{"request", "cancel"}, {"evaluation", cancel.evaluation}};
}

OrderedJson encode_fields(const Pin& pin) {
  return OrderedJson{{"request", "pin"}, {"step", pin.step}, {"off", pin.off}};
}

OrderedJson encode_fields(const Prune& prune) {
  OrderedJson json = {{"request", "prune"}, {"dry_run", prune.dry_run}};
  if (prune.keep.has_value()) json["keep"] = *prune.keep;
  if (prune.older_than.has_value()) json["older_than_s"] = prune.older_than->count();
  return json;
}

/// A whole number from 0 on, if the key is there.
Result<std::optional<std::int64_t>> count_of(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::optional<std::int64_t>();
  if (!found->is_number_unsigned() ||
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return not_understood("\"" + std::string(key) + "\" is not a whole number from 0 on");
  }
  return std::optional(found->get<std::int64_t>());
}

Result<Request> decode_retry(const OrderedJson& json) {
  EVALCAR_ASSIGN_OR_RETURN(const auto step, count_of(json, "step"));
  if (!step.has_value()) return not_understood("\"step\" is not a whole number from 0 on");
  return Request{Retry{*step}};
}

Result<Request> decode_cancel(const OrderedJson& json) {
  EVALCAR_ASSIGN_OR_RETURN(const auto evaluation, count_of(json, "evaluation"));
  if (!evaluation.has_value()) {
    return not_understood("\"evaluation\" is not a whole number from 0 on");
  }
  return Request{Cancel{*evaluation}};
}

Result<Request> decode_pin(const OrderedJson& json) {
  EVALCAR_ASSIGN_OR_RETURN(const auto step, count_of(json, "step"));
  if (!step.has_value()) return not_understood("\"step\" is not a whole number from 0 on");
  const auto off = json.find("off");
  if (off == json.end() || !off->is_boolean()) {
    return not_understood("\"off\" is neither true nor false");
  }
  return Request{Pin{*step, off->get<bool>()}};
}

Result<Request> decode_prune(const OrderedJson& json) {
  // Ten thousand years: no time that is counted with it can overflow.
  constexpr std::int64_t kLongest = std::int64_t{10'000} * 366 * 86'400;
  Prune prune;
  EVALCAR_ASSIGN_OR_RETURN(prune.keep, count_of(json, "keep"));
  EVALCAR_ASSIGN_OR_RETURN(const auto older_than, count_of(json, "older_than_s"));
  if (older_than.has_value() && *older_than > kLongest) {
    return not_understood("\"older_than_s\" is more than ten thousand years");
  }
  if (older_than.has_value()) prune.older_than = std::chrono::seconds(*older_than);
  if (!prune.keep.has_value() && !prune.older_than.has_value()) {
    return not_understood("neither \"keep\" nor \"older_than_s\"");
  }
  const auto dry_run = json.find("dry_run");
  if (dry_run == json.end() || !dry_run->is_boolean()) {
    return not_understood("\"dry_run\" is neither true nor false");
  }
  prune.dry_run = dry_run->get<bool>();
  return Request{prune};
}

}  // namespace

std::string folder_of(const std::string& database) { return database + ".requests"; }

std::string encode(const Request& request) {
  OrderedJson json = std::visit([](const auto& one) { return encode_fields(one); }, request);
  json["version"] = kVersion;
  return json.dump() + "\n";
}

std::string encode(const Answer& answer) {
  const OrderedJson json = {{"version", kVersion},
                            {"outcome", kOutcomes.at(static_cast<std::size_t>(answer.outcome))},
                            {"text", answer.text},
                            {"more", answer.more}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<Request> decode_request(std::string_view text) {
  EVALCAR_ASSIGN_OR_RETURN(const OrderedJson json, parse_object(text));
  const std::string kind = text_of(json, "request");
  if (kind == "retry") return decode_retry(json);
  if (kind == "backfill") return Request{Backfill{}};
  if (kind == "cancel") return decode_cancel(json);
  if (kind == "pin") return decode_pin(json);
  if (kind == "prune") return decode_prune(json);
  return not_understood(
      "\"request\" is none that this version knows (retry, backfill, cancel, pin, prune)");
}

Result<Answer> decode_answer(std::string_view text) {
  EVALCAR_ASSIGN_OR_RETURN(const OrderedJson json, parse_object(text));
  const std::string outcome = text_of(json, "outcome");
  for (std::size_t i = 0; i < kOutcomes.size(); ++i) {
    if (outcome != kOutcomes.at(i)) continue;
    const auto more = json.find("more");
    return Answer{static_cast<Outcome>(i), text_of(json, "text"),
                  more != json.end() && more->is_boolean() && more->get<bool>()};
  }
  return not_understood("\"outcome\" is none of done, nothing, failed");
}

}  // namespace evalcar::request
