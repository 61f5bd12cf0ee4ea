#include "agent/http/target.h"

namespace evalcar::http {
namespace {

constexpr std::size_t kMaxParameters = 32;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Error bad(const char* why) {
  return make_error(ErrorCode::kInvalidArgument, std::string("the request's target ") + why);
}

Result<std::string> decode(std::string_view text, bool plus_is_blank) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_blank) c = ' ';
    if (c == '%') {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) return bad("has a broken escape");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f) return bad("has a control character");
    decoded.push_back(c);
  }
  return decoded;
}

}  // namespace

Result<Target> parse_target(std::string_view text) {
  if (!text.starts_with('/')) return bad("is no path");
  text = text.substr(0, text.find('#'));
  const std::size_t question = text.find('?');
  Target target;
  EVALCAR_ASSIGN_OR_RETURN(target.path, decode(text.substr(0, question), false));
  if (question == std::string_view::npos) return target;
  std::string_view rest = text.substr(question + 1);
  for (std::size_t count = 0; !rest.empty(); ++count) {
    if (count == kMaxParameters) return bad("has too many parameters");
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    EVALCAR_ASSIGN_OR_RETURN(std::string name, decode(pair.substr(0, equals), true));
    EVALCAR_ASSIGN_OR_RETURN(target.query[name],
                             decode(pair.substr(std::min(equals + 1, pair.size())), true));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return target;
}

}  // namespace evalcar::http
