// Messages as JSON and back, by the fields that message_fields.h lists. For messages.cpp alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "store/protocol/message_fields.h"

namespace evalcar::protocol {

using Json = nlohmann::json;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

/// Numbers that are not finite become null.
class Writer {
 public:
  template <typename T>
  void operator()(const char* key, const T& field) {
    json_[key] = to_json_value(field);
  }
  template <typename T>
  void optional(const char* key, const T& field) {
    (*this)(key, field);
  }
  /// Left out where it says nothing, so that what was hashed before there was such a field keeps
  /// its hash.
  void unless_zero(const char* key, std::int64_t field) {
    if (field != 0) (*this)(key, field);
  }
  template <typename T>
  void unless_empty(const char* key, const T& field) {
    if (!field.empty()) (*this)(key, field);
  }
  Json take() { return std::move(json_); }

 private:
  template <typename T>
  static Json to_json_value(const T& field) {
    if constexpr (IsOptional<T>::value) {
      return field.has_value() ? to_json_value(*field) : Json(nullptr);
    } else if constexpr (IsVector<T>::value) {
      Json array = Json::array();
      for (const auto& element : field) array.push_back(to_json_value(element));
      return array;
    } else if constexpr (std::is_same_v<T, double>) {
      return std::isfinite(field) ? Json(field) : Json(nullptr);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return Json(field);
    } else {
      Writer inner;
      visit(inner,
            const_cast<T&>(
                field));  // visit() names the fields for both directions; the writer only reads
      return inner.take();
    }
  }
  Json json_ = Json::object();
};

/// Keeps the first mistake, and reads nothing behind it.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* key, T& field) {
    if (!problem_.empty()) return;
    const auto found = json_.find(key);
    if (found == json_.end()) {
      problem_ = std::string("field \"") + key + "\" is missing";
      return;
    }
    read_value(key, *found, field);
  }
  /// Of a field that older programs do not send.
  template <typename T>
  void optional(const char* key, T& field) {
    if (json_.contains(key)) (*this)(key, field);
  }
  void unless_zero(const char* key, std::int64_t& field) { optional(key, field); }
  template <typename T>
  void unless_empty(const char* key, T& field) {
    optional(key, field);
  }
  const std::string& problem() const { return problem_; }

 private:
  void expect(bool ok, const char* key, const char* what) {
    if (!ok && problem_.empty()) problem_ = std::string("field \"") + key + "\": expected " + what;
  }

  template <typename T>
  void read_value(const char* key, const Json& json, T& field) {
    if constexpr (IsOptional<T>::value) {
      field.reset();
      if (!json.is_null()) read_value(key, json, field.emplace());
    } else if constexpr (IsVector<T>::value) {
      expect(json.is_array(), key, "an array");
      if (!problem_.empty()) return;
      field.clear();
      for (const Json& element : json) read_value(key, element, field.emplace_back());
    } else if constexpr (std::is_same_v<T, bool>) {
      expect(json.is_boolean(), key, "a boolean");
      if (problem_.empty()) field = json.get<bool>();
    } else if constexpr (std::is_same_v<T, double>) {
      expect(json.is_number(), key, "a number");
      if (problem_.empty()) field = json.get<double>();
    } else if constexpr (std::is_unsigned_v<T>) {
      expect(json.is_number_unsigned(), key, "a whole number >= 0");
      if (problem_.empty()) field = json.get<T>();
    } else if constexpr (std::is_integral_v<T>) {
      expect(json.is_number_integer(), key, "a whole number");
      if (problem_.empty()) field = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      expect(json.is_string(), key, "a string");
      if (problem_.empty()) field = json.get<std::string>();
    } else {
      expect(json.is_object(), key, "an object");
      if (!problem_.empty()) return;
      Reader inner(json);
      visit(inner, field);
      if (!inner.problem_.empty()) problem_ = std::string("in \"") + key + "\": " + inner.problem_;
    }
  }

  const Json& json_;
  std::string problem_;
};

}  // namespace evalcar::protocol
