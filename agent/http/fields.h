// Fields of a request's JSON, checked as pydantic checks them in lmms-eval's server, so that
// clients meet the same 422 with the same list.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/http/message.h"

namespace evalcar::http {

/// Reads fields one after another and collects what is wrong. Unknown fields are passed over.
class Fields {
 public:
  using OrderedJson = nlohmann::ordered_json;
  /// A body that is no object gives one error. `body` must outlive it.
  explicit Fields(const OrderedJson& body);

  /// Required: absent or null is an error. The others: absent or null is the default.
  std::string text(const char* name);
  std::vector<std::string> text_list(const char* name);
  std::optional<std::string> optional_text(const char* name);
  std::optional<std::int64_t> optional_integer(const char* name);
  std::int64_t integer(const char* name, std::int64_t otherwise);
  bool boolean(const char* name, bool otherwise);
  /// A number, or what a number is made of; null else.
  OrderedJson optional_number(const char* name);
  /// A number or a text.
  OrderedJson optional_integer_or_text(const char* name);
  /// An object; empty if absent.
  OrderedJson optional_object(const char* name);

  /// A word of our own against a field.
  void refuse(const char* name, const std::string& message);
  bool good() const { return errors_.empty(); }
  /// 422 with the list.
  Response response() const;

 private:
  const OrderedJson* find(const char* name);
  void wrong(const char* type, std::vector<OrderedJson> place, const std::string& message,
             const OrderedJson& input);
  std::optional<std::int64_t> as_integer(const char* name, const OrderedJson& value);

  const OrderedJson& body_;
  std::vector<OrderedJson> errors_;
};

/// 422 for a body that is no JSON at all, as from pydantic; 400 for JSON beyond our bounds
/// (kUnsupported), as lmms-eval's server answers what its parser gives up.
Response not_json(const Error& error);

}  // namespace evalcar::http
