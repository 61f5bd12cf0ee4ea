// String formatting: "%s" % x, the `format` filter, and str.format.
#include <array>
#include <charconv>
#include <cstdio>
#include <string>

#include "evaluator/text/jinja_runtime.h"
#include "evaluator/text/jinja_text.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

constexpr int kMaxWidth = 1000;

// Flags, width and precision of one %-conversion.
struct Conversion {
  std::string flags;
  int width = 0;
  int precision = -1;
  char kind = 's';
};

std::string pad(std::string text, const Conversion& conversion, bool zeros) {
  const auto size = static_cast<int>(character_count(text));
  if (size >= conversion.width) return text;
  const auto missing = static_cast<std::size_t>(conversion.width - size);
  if (conversion.flags.find('-') != std::string::npos) return text + std::string(missing, ' ');
  if (!zeros) return std::string(missing, ' ') + text;
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return text.insert(sign ? 1 : 0, std::string(missing, '0'));
}

std::string convert(Runtime& runtime, const Conversion& conversion, const Value& value) {
  const bool zeros = conversion.flags.find('0') != std::string::npos;
  const std::string plus = conversion.flags.find('+') != std::string::npos ? "+" : "";
  std::array<char, 512> buffer{};
  double real = 0;
  if (conversion.kind == 's' || conversion.kind == 'r') {
    std::string text = conversion.kind == 's' ? to_text(runtime, value) : to_repr(runtime, value);
    if (conversion.precision >= 0) {
      const auto all = characters(text);
      std::string cut;
      for (std::size_t i = 0; i < all.size() && i < static_cast<std::size_t>(conversion.precision);
           ++i)
        cut += all[i];
      text = cut;
    }
    return pad(std::move(text), conversion, false);
  }
  if (!value.as_number(real)) {
    runtime.type_error(std::string("%") + conversion.kind +
                       " format: a real number is required, not " + std::string(value.type_name()));
    return {};
  }
  if (conversion.kind == 'd' || conversion.kind == 'i') {
    std::int64_t number = 0;
    if (!value.as_integer(number)) number = static_cast<std::int64_t>(real);
    return pad((number >= 0 ? plus : "") + std::to_string(number), conversion, zeros);
  }
  const std::string format = std::string("%") + (plus.empty() ? "" : "+") + ".*" + conversion.kind;
  const int precision = conversion.precision < 0 ? 6 : conversion.precision;
  const int size = std::snprintf(buffer.data(), buffer.size(), format.c_str(), precision, real);
  return pad(std::string(buffer.data(),
                         std::min<std::size_t>(static_cast<std::size_t>(size), buffer.size() - 1)),
             conversion, zeros);
}

}  // namespace

Value format_percent(Runtime& runtime, const std::string& format, const Value& values) {
  const List* tuple = values.list();
  if (tuple != nullptr && tuple->form != List::Form::kTuple) tuple = nullptr;
  std::size_t next = 0;
  std::string out;
  const auto number_at = [&](std::size_t& i, int& result) {
    while (i < format.size() && is_ascii_digit(format[i])) {
      result = std::min(result * 10 + (format[i++] - '0'), kMaxWidth);
    }
  };
  for (std::size_t i = 0; i < format.size() && runtime.charge(1);) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    Conversion conversion;
    ++i;
    std::string key;
    if (i < format.size() && format[i] == '(') {
      const std::size_t close = format.find(')', i);
      if (close == std::string::npos) return runtime.fail("ValueError: incomplete format key");
      key = format.substr(i + 1, close - i - 1);
      i = close + 1;
    }
    while (i < format.size() && std::string_view("-+0 #").find(format[i]) != std::string_view::npos)
      conversion.flags += format[i++];
    number_at(i, conversion.width);
    if (i < format.size() && format[i] == '.') {
      conversion.precision = 0;
      number_at(++i, conversion.precision);
    }
    if (i >= format.size()) return runtime.fail("ValueError: incomplete format");
    conversion.kind = format[i++];
    if (conversion.kind == '%') {
      out += '%';
      continue;
    }
    if (std::string_view("sdirfFeEgG").find(conversion.kind) == std::string_view::npos)
      return runtime.fail(std::string("the format %") + conversion.kind + " is not supported");
    if (!key.empty()) {
      out += convert(runtime, conversion, get_item(runtime, values, Value(key)));
      continue;
    }
    const std::size_t count = tuple != nullptr ? tuple->items.size() : 1;
    if (next >= count) return runtime.type_error("not enough arguments for format string");
    out += convert(runtime, conversion, tuple != nullptr ? tuple->items[next] : values);
    ++next;
  }
  if (tuple != nullptr ? next < tuple->items.size() : next == 0 && values.dict() == nullptr)
    return runtime.type_error("not all arguments converted during string formatting");
  runtime.charge_bytes(out.size());
  return out;
}

Value format_braces(Runtime& runtime, const std::string& format, const Arguments& arguments) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size() && runtime.charge(1); ++i) {
    const char c = format[i];
    if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      ++i;
    } else if (c == '{') {
      const std::size_t close = format.find('}', i);
      if (close == std::string::npos)
        return runtime.fail("ValueError: expected '}' before end of string");
      const std::string field = format.substr(i + 1, close - i - 1);
      i = close;
      std::size_t index = field.empty() ? next++ : 0;
      const char* end = field.data() + field.size();
      const bool numbered = field.empty() || std::from_chars(field.data(), end, index).ptr == end;
      const Value* value =
          numbered ? (index < arguments.positional.size() ? &arguments.positional[index] : nullptr)
                   : arguments.find(field);
      if (value == nullptr)
        return runtime.fail("str.format: no argument for {" + field +
                            "} (format specifications are not supported)");
      out += to_text(runtime, *value);
    } else if (c == '}') {
      return runtime.fail("ValueError: Single '}' encountered in format string");
    } else {
      out += c;
    }
  }
  runtime.charge_bytes(out.size());
  return out;
}

}  // namespace evalcar::text::jinja
