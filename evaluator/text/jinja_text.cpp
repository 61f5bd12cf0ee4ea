#include "evaluator/text/jinja_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "evaluator/text/jinja_lexer.h"
#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonOptions& options) : runtime_(runtime), options_(options) {}

  std::string write(const Value& value) {
    put(value);
    return std::move(out_);
  }

 private:
  void put(const Value& value) {
    const DepthGuard guard(runtime_);
    if (!guard || !runtime_.charge(1)) return;
    if (value.is_none()) {
      out_ += "null";
    } else if (const bool* flag = value.boolean()) {
      out_ += *flag ? "true" : "false";
    } else if (const auto* number = value.integer()) {
      out_ += std::to_string(*number);
    } else if (const double* real = value.real()) {
      out_ += real_text(*real);
    } else if (const auto* text = value.string()) {
      put_string(*text);
    } else if (const List* list = value.list();
               list != nullptr &&
               (list->form == List::Form::kList || list->form == List::Form::kTuple)) {
      put_list(*list);
    } else if (const Dict* dict = value.dict()) {
      put_dict(*dict);
    } else {
      runtime_.type_error("Object of type " + std::string(value.type_name()) +
                          " is not JSON serializable");
    }
  }

  static std::string real_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_text(value);
  }

  void put_string(const std::string& text) {
    runtime_.charge_bytes(text.size() + out_.size() / 64);
    out_ += '"';
    std::array<char, 16> code{};
    const auto escape = [&](char32_t unit) {
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(unit));
      out_ += code.data();
    };
    constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
    constexpr std::string_view kEscaped = "\"\\nrtfb";
    for (std::size_t i = 0; i < text.size();) {
      const Decoded next = decode_utf8(text, i);
      const char32_t c = next.code_point;
      const std::size_t short_form =
          c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
      if (short_form != std::string_view::npos) {
        out_ += '\\';
        out_ += kEscaped[short_form];
      } else if (c < 0x20 || (options_.ensure_ascii && c > 0x7E && c < 0x10000)) {
        escape(c);
      } else if (options_.ensure_ascii && c >= 0x10000) {
        escape(0xD800 + ((c - 0x10000) >> 10U));
        escape(0xDC00 + ((c - 0x10000) & 0x3FFU));
      } else {
        out_.append(text, i, next.length_bytes);
      }
      i += next.length_bytes;
    }
    out_ += '"';
  }

  void new_line() {
    if (!options_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *options_.indent;
    runtime_.charge_bytes(out_.size() / 64);
  }

  void put_list(const List& list) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (std::size_t i = 0; i < list.items.size() && !runtime_.failed(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      new_line();
      put(list.items[i]);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  void put_key(const Value& key) {
    if (const auto* text = key.string()) return put_string(*text);
    if (key.is_none() || key.boolean() != nullptr || key.integer() != nullptr ||
        key.real() != nullptr) {
      out_ += '"';
      put(key);
      out_ += '"';
    } else {
      runtime_.type_error("keys must be str, int, float, bool or None, not " +
                          std::string(key.type_name()));
    }
  }

  void put_dict(const Dict& dict) {
    if (dict.items.empty()) {
      out_ += "{}";
      return;
    }
    auto items = dict.items;
    if (options_.sort_keys)
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        return less(runtime_, a.first, b.first);
      });
    out_ += '{';
    ++level_;
    for (std::size_t i = 0; i < items.size() && !runtime_.failed(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      new_line();
      put_key(items[i].first);
      out_ += options_.key_separator;
      put(items[i].second);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  Runtime& runtime_;
  const JsonOptions& options_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::size_t character_count(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = decode_utf8(text, i).length_bytes;
    all.push_back(text.substr(i, length));
    i += length;
  }
  return all;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> of, bool left,
                       bool right) {
  const auto goes = [&](std::string_view character) {
    return of ? of->find(character) != std::string_view::npos
              : is_python_space(decode_utf8(character, 0).code_point);
  };
  while (left && !text.empty()) {
    const std::size_t length = decode_utf8(text, 0).length_bytes;
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80U) --last;
    if (!goes(text.substr(last))) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    std::size_t end = i + next.length_bytes;
    if (is_line_end(next.code_point)) {
      if (next.code_point == '\r' && end < text.size() && text[end] == '\n') ++end;
      lines.emplace_back(text.substr(begin, (keep_ends ? end : i) - begin));
      begin = end;
    }
    i = end;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = decode_utf8(text, 0).length_bytes;
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title_words(std::string_view text) {
  std::string out, word;
  const auto end_word = [&] {
    out += capitalize(word);
    word.clear();
  };
  for (const std::string_view character : characters(text)) {
    const bool splits = std::string_view("-({[<").find(character) != std::string_view::npos ||
                        is_python_space(decode_utf8(character, 0).code_point);
    if (!splits) {
      word += character;
      continue;
    }
    end_word();
    out += character;
  }
  end_word();
  return out;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t count) {
  std::string out;
  std::size_t at = 0;
  if (from.empty()) {  // before each character and at the end
    for (const std::string_view character : characters(text)) {
      if (count-- != 0) {
        out += to;
      } else {
        ++count;
      }
      out += character;
    }
    return count != 0 ? out + std::string(to) : out;
  }
  while (count != 0) {
    const std::size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
    --count;
  }
  return out += text.substr(at);
}

std::string join(Runtime& runtime, std::string_view glue, const std::vector<Value>& items) {
  std::string out;
  for (std::size_t i = 0; i < items.size() && !runtime.failed(); ++i) {
    if (i > 0) out += glue;
    out += to_text(runtime, items[i]);
    if (!runtime.charge_bytes(glue.size()) || out.size() > Runtime::kMaxOutputBytes) {
      runtime.charge_bytes(out.size());
      break;
    }
  }
  return out;
}

std::string to_json(Runtime& runtime, const Value& value, const JsonOptions& options) {
  return JsonWriter(runtime, options).write(value);
}

}  // namespace evalcar::text::jinja
