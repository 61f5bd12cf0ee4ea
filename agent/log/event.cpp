#include "agent/log/event.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "store/base/text.h"

namespace evalcar::log {
namespace {

bool is_plain(std::string_view value) {
  return !value.empty() && value.find_first_of(" \"\\=") == std::string_view::npos;
}

/// A space behind a space would look like the begin of the fields.
std::string quoted(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == ' ' && out.back() == ' ') {
      out += "\\x20";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

/// What others wrote into the sentence or the lines below it must not look like fields.
std::string without_begins(std::string_view text) {
  constexpr std::string_view kBegin = "  event=";
  std::string out(text);
  for (std::size_t at = 0; (at = out.find(kBegin, at)) != std::string::npos;) {
    out.erase(at, 1);
    if (at > 0) --at;  // a third space before it
  }
  return out;
}

void say(spdlog::level::level_enum level, std::string_view text, const Event& event) {
  const std::string shown = without_begins(text);
  const std::size_t end = std::min(shown.find('\n'), shown.size());
  spdlog::log(level, "{}  {}{}", shown.substr(0, end), event.fields(), shown.substr(end));
}

}  // namespace

Event& Event::append(std::string_view name, std::string_view literal) {
  fields_.append(" ").append(name).append("=").append(literal);
  return *this;
}

Event& Event::with(std::string_view name, std::string_view value) {
  const std::string shown = printable(value);
  return append(name, is_plain(shown) ? shown : quoted(shown));
}

Event& Event::with(std::string_view name, std::int64_t value) {
  return append(name, std::to_string(value));
}

Event& Event::with(std::string_view name, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.3f", value);
  return append(name, text.data());
}

void info(std::string_view text, const Event& event) { say(spdlog::level::info, text, event); }
void warn(std::string_view text, const Event& event) { say(spdlog::level::warn, text, event); }
void error(std::string_view text, const Event& event) { say(spdlog::level::err, text, event); }

}  // namespace evalcar::log
