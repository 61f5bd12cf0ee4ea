#include "agent/publish/foreign_json.h"

namespace evalcar::publish {

using OrderedJson = nlohmann::ordered_json;

OrderedJson parse_shallow(const std::string& text) {
  constexpr int kMaxDepth = 64;
  bool too_deep = false;
  const auto watch_depth = [&too_deep](int depth, OrderedJson::parse_event_t, OrderedJson&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  OrderedJson json = OrderedJson::parse(text, watch_depth, /*allow_exceptions=*/false);
  if (too_deep) return {};
  return json;
}

std::string text_of(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<std::int64_t> integer_of(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

OrderedJson object_of(const OrderedJson& parent, const char* key) {
  const auto found = parent.find(key);
  return found != parent.end() && found->is_object() ? *found : OrderedJson::object();
}

}  // namespace evalcar::publish
