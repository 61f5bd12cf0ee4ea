#include "agent/page/page_file.h"

#include <nlohmann/json.hpp>

#include "agent/page/assets.h"
#include "store/base/hash.h"

namespace evalcar::page {
namespace {

std::string source_hash(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  const Sha256Digest digest = hash.finish();
  return "'sha256-" + base64({reinterpret_cast<const char*>(digest.data()), digest.size()}) + "'";
}

/// JSON as the text of a script element: nothing in it can end the element or begin a comment.
std::string inert(std::string_view json) {
  std::string text;
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text.push_back(c);
    }
  }
  return text;
}

std::string data_block(std::string_view id, std::string_view json) {
  return "<script type=\"application/json\" id=\"" + std::string(id) + "\">" + inert(json) +
         "</script>\n";
}

std::string element(std::string_view name, std::string_view text) {
  return "<" + std::string(name) + ">" + std::string(text) + "</" + std::string(name) + ">\n";
}

void put(std::string& page, std::string_view mark, const std::string& text) {
  const std::size_t at = page.find(mark);
  if (at != std::string::npos) page.replace(at, mark.size(), text);
}

std::string policy(const std::string& more) {
  using namespace assets;
  return "default-src 'none'; script-src " + source_hash(kPlotScript) + " " + source_hash(kScript) +
         "; style-src " + source_hash(kPlotStyle) + " " + source_hash(kStyle) +
         "; base-uri 'none'; form-action 'none'" + more;
}

std::string assembled(const std::string& with_policy, const std::string& data) {
  using namespace assets;
  const std::string licence =
      nlohmann::json(kPlotLicence).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string page(kIndex);
  put(page, "<!--head-->",
      "<meta http-equiv=\"Content-Security-Policy\" content=\"" + with_policy + "\">\n" +
          element("style", kPlotStyle) + element("style", kStyle));
  put(page, "<!--scripts-->",
      data_block("licence-text", licence) + data + element("script", kPlotScript) +
          element("script", kScript));
  return page;
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::uint32_t byte =
          at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U;
      group = (group << 8U) | byte;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const bool padding = at + i > bytes.size();
      text.push_back(padding ? '=' : kLetters[(group >> (18U - 6U * i)) & 0x3FU]);
    }
  }
  return text;
}

std::string page_file(std::string_view data) {
  return assembled(policy(""), data_block("page-data", data));
}

const LivePage& live_page() {
  static const LivePage kPage = [] {
    const std::string asks = policy("; connect-src 'self'; img-src 'self'");
    return LivePage{assembled(asks, ""), asks + "; frame-ancestors 'none'"};
  }();
  return kPage;
}

}  // namespace evalcar::page
