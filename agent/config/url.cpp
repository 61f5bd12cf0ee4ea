#include "agent/config/url.h"

#include <algorithm>

namespace evalcar::config {

Status check_http_url(const std::string& url) {
  constexpr std::size_t kMostBytes = 2000;
  const auto wrong = [](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument, why);
  };
  const bool http = url.starts_with("http://");
  if (!http && !url.starts_with("https://")) return wrong("expected a URL of http or https");
  if (url.size() > kMostBytes) return wrong("expected at most 2000 bytes");
  const bool printable_bytes = std::all_of(url.begin(), url.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7F;
  });
  if (!printable_bytes) return wrong("expected a URL without blanks and control characters");
  const std::string rest = url.substr(http ? 7 : 8);
  const std::string host = rest.substr(0, rest.find_first_of("/?#"));
  if (host.empty() || host.starts_with(':')) return wrong("expected a host");
  if (host.find('@') != std::string::npos) {
    return wrong("expected no password in it; publish.webhook_secret_file signs what is sent");
  }
  return {};
}

}  // namespace evalcar::config
