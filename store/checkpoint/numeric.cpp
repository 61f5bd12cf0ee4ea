#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {

std::string quote_name(std::string_view name) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::size_t kLimit = 120;
  std::string text = "\"";
  for (const char c : name.substr(0, kLimit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      text.push_back(c);
    } else {
      text += "\\x";
      text.push_back(kDigits[byte >> 4U]);
      text.push_back(kDigits[byte & 15U]);
    }
  }
  if (name.size() > kLimit) text += "…";
  return text + "\"";
}

}  // namespace evalcar::checkpoint
