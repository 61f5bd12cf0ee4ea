#include "agent/http/fields.h"

#include <charconv>
#include <cmath>

namespace evalcar::http {
namespace {

using OrderedJson = Fields::OrderedJson;

constexpr std::size_t kMaxEcho = 200;  ///< of what was sent, in the answer

/// What was sent, in bounds.
OrderedJson echo(const OrderedJson& input) {
  if (input.is_string() && input.get_ref<const std::string&>().size() > kMaxEcho) {
    return input.get_ref<const std::string&>().substr(0, kMaxEcho) + "…";
  }
  if (!input.is_structured()) return input;
  const std::size_t size = input.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).size();
  return size > 4 * kMaxEcho ? OrderedJson("…") : input;
}

Response list_response(const OrderedJson& list) {
  Response response;
  response.status = 422;
  response.body =
      OrderedJson{{"detail", list}}.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return response;
}

}  // namespace

Fields::Fields(const OrderedJson& body) : body_(body) {
  if (body.is_object()) return;
  wrong("model_attributes_type", {"body"},
        "Input should be a valid dictionary or object to extract fields from", body);
}

void Fields::wrong(const char* type, std::vector<OrderedJson> place, const std::string& message,
                   const OrderedJson& input) {
  errors_.push_back({{"type", type}, {"loc", place}, {"msg", message}, {"input", echo(input)}});
}

const OrderedJson* Fields::find(const char* name) {
  if (!body_.is_object()) return nullptr;
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::refuse(const char* name, const std::string& message) {
  const OrderedJson* const value = find(name);
  wrong("value_error", {"body", name}, message, value == nullptr ? OrderedJson() : *value);
}

std::string Fields::text(const char* name) {
  if (!body_.is_object()) return "";
  const auto found = body_.find(name);
  if (found == body_.end()) {
    wrong("missing", {"body", name}, "Field required", body_);
    return "";
  }
  if (!found->is_string()) {
    wrong("string_type", {"body", name}, "Input should be a valid string", *found);
    return "";
  }
  return found->get<std::string>();
}

std::vector<std::string> Fields::text_list(const char* name) {
  std::vector<std::string> texts;
  if (!body_.is_object()) return texts;
  const auto found = body_.find(name);
  if (found == body_.end()) {
    wrong("missing", {"body", name}, "Field required", body_);
    return texts;
  }
  if (!found->is_array()) {
    wrong("list_type", {"body", name}, "Input should be a valid list", *found);
    return texts;
  }
  for (std::size_t i = 0; i < found->size(); ++i) {
    const OrderedJson& item = (*found)[i];
    if (item.is_string()) {
      texts.push_back(item.get<std::string>());
    } else {
      wrong("string_type", {"body", name, i}, "Input should be a valid string", item);
    }
  }
  return texts;
}

std::optional<std::string> Fields::optional_text(const char* name) {
  const OrderedJson* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong("string_type", {"body", name}, "Input should be a valid string", *value);
  return std::nullopt;
}

std::optional<std::int64_t> Fields::as_integer(const char* name, const OrderedJson& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= static_cast<std::uint64_t>(INT64_MAX)) return static_cast<std::int64_t>(number);
  } else if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  } else if (value.is_boolean()) {
    return value.get<bool>() ? 1 : 0;
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < 1e15) {
      return static_cast<std::int64_t>(number);
    }
    wrong("int_from_float", {"body", name},
          "Input should be a valid integer, got a number with a fractional part", value);
    return std::nullopt;
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (!text.empty() && error == std::errc{} && end == text.data() + text.size()) return number;
    wrong("int_parsing", {"body", name},
          "Input should be a valid integer, unable to parse string as an integer", value);
    return std::nullopt;
  }
  wrong("int_type", {"body", name}, "Input should be a valid integer", value);
  return std::nullopt;
}

std::optional<std::int64_t> Fields::optional_integer(const char* name) {
  const OrderedJson* const value = find(name);
  return value == nullptr ? std::nullopt : as_integer(name, *value);
}

std::int64_t Fields::integer(const char* name, std::int64_t otherwise) {
  if (!body_.is_object()) return otherwise;
  const auto found = body_.find(name);
  return found == body_.end() ? otherwise : as_integer(name, *found).value_or(otherwise);
}

bool Fields::boolean(const char* name, bool otherwise) {
  if (!body_.is_object()) return otherwise;
  const auto found = body_.find(name);
  if (found == body_.end()) return otherwise;
  if (found->is_boolean()) return found->get<bool>();
  if (found->is_number_integer() && (*found == 0 || *found == 1)) return *found == 1;
  if (found->is_string()) {
    const auto& word = found->get_ref<const std::string&>();
    if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
    if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  }
  if (found->is_string() || found->is_number()) {
    wrong("bool_parsing", {"body", name},
          "Input should be a valid boolean, unable to interpret input", *found);
  } else {
    wrong("bool_type", {"body", name}, "Input should be a valid boolean", *found);
  }
  return otherwise;
}

OrderedJson Fields::optional_number(const char* name) {
  const OrderedJson* const value = find(name);
  if (value == nullptr || value->is_number()) return value == nullptr ? OrderedJson() : *value;
  const auto number = as_integer(name, *value);
  return number.has_value() ? OrderedJson(*number) : OrderedJson();
}

OrderedJson Fields::optional_integer_or_text(const char* name) {
  const OrderedJson* const value = find(name);
  if (value == nullptr || value->is_string()) return value == nullptr ? OrderedJson() : *value;
  const auto number = as_integer(name, *value);
  return number.has_value() ? OrderedJson(*number) : OrderedJson();
}

OrderedJson Fields::optional_object(const char* name) {
  const OrderedJson* const value = find(name);
  if (value == nullptr) return OrderedJson::object();
  if (value->is_object()) return *value;
  wrong("dict_type", {"body", name}, "Input should be a valid dictionary", *value);
  return OrderedJson::object();
}

Response Fields::response() const { return list_response(errors_); }

Response not_json(const Error& error) {
  if (error.code == ErrorCode::kUnsupported) return error_response(400, error.message);
  return list_response(OrderedJson::array({{{"type", "json_invalid"},
                                            {"loc", {"body", 0}},
                                            {"msg", "JSON decode error"},
                                            {"input", OrderedJson::object()},
                                            {"ctx", {{"error", error.message}}}}}));
}

}  // namespace evalcar::http
