#include "evaluator/tasks/python_json.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "evaluator/metrics/python_number.h"
#include "evaluator/metrics/python_text.h"

namespace evalcar::tasks {
namespace {

constexpr int kMostDepth = 64;

void append_string(std::string& out, const std::string& text) {
  // Bytes that are not UTF-8 are shown as U+FFFD.
  const std::string valid = metrics::encode_utf8(metrics::decode_utf8(text));
  out.push_back('"');
  for (const char c : valid) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          std::array<char, 8> buffer{};
          std::snprintf(buffer.data(), buffer.size(), "\\u%04x", static_cast<unsigned>(c));
          out += buffer.data();
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

void append_float(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value < 0 ? "-Infinity" : "Infinity";
  } else {
    out += metrics::float_repr(value);
  }
}

// A list or a dictionary, which json.dumps and repr punctuate alike.
template <typename AppendKey, typename AppendItem>
void append_container(std::string& out, const Value& value, AppendKey append_key,
                      AppendItem append_item) {
  const bool object = value.is_object();
  out.push_back(object ? '{' : '[');
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) out += ", ";
    first = false;
    if (object) {
      append_key(out, key);
      out += ": ";
    }
    append_item(out, item);
  }
  out.push_back(object ? '}' : ']');
}

void append_json(std::string& out, const Value& value) {
  if (value.is_string()) {
    append_string(out, value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    append_float(out, value.get<double>());
  } else if (value.is_structured()) {
    append_container(out, value, append_string, append_json);
  } else if (value.is_binary()) {
    append_string(out, "<bytes>");
  } else {
    out += value.dump();  // null, true, false, integers
  }
}

void append_repr(std::string& out, const Value& value) {
  if (value.is_string()) {
    out += metrics::repr(value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    out += metrics::float_repr(value.get<double>());
  } else if (value.is_null()) {
    out += "None";
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? "True" : "False";
  } else if (value.is_structured()) {
    append_container(
        out, value, [](std::string& text, const std::string& key) { text += metrics::repr(key); },
        append_repr);
  } else {
    out += value.dump();
  }
}

// nlohmann destroys and copies nested values by recursion: a line of a million brackets must not
// reach it.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// Python writes NaN, Infinity and -Infinity, which JSON does not know: they become null.
std::string without_python_floats(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out.push_back(c);
      if (c == '\\' && i + 1 < text.size()) {
        out.push_back(text[++i]);
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    in_string = c == '"';
    std::size_t length = 0;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (text.substr(i, word.size()) == word) length = word.size();
    }
    if (length == 0) {
      out.push_back(c);
    } else {
      out += "null";
      i += length - 1;
    }
  }
  return out;
}

}  // namespace

std::string python_json(const Value& value) {
  std::string out;
  append_json(out, value);
  return out;
}

std::string python_str(const Value& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string out;
  append_repr(out, value);
  return out;
}

Result<Value> parse_json(std::string_view text) {
  if (is_too_deep(text)) {
    return make_error(ErrorCode::kCorruption,
                      "JSON nested deeper than " + std::to_string(kMostDepth) + " levels");
  }
  const bool from_python =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  try {
    return from_python ? Value::parse(without_python_floats(text)) : Value::parse(text);
  } catch (const nlohmann::json::exception& e) {
    return make_error(ErrorCode::kCorruption, e.what());
  }
}

}  // namespace evalcar::tasks
