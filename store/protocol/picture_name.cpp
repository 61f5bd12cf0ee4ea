#include "store/protocol/picture_name.h"

#include <algorithm>

#include "store/base/file_system.h"

namespace evalcar::protocol {
namespace {

constexpr std::string_view kEnding = ".jpg";
constexpr std::size_t kDigits = 64;

bool is_lower_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

std::string sample_picture_name(const Sha256Digest& source) {
  return to_hex(source).append(kEnding);
}

bool is_sample_picture_name(std::string_view name) {
  return name.size() == kDigits + kEnding.size() && name.ends_with(kEnding) &&
         std::ranges::all_of(name.substr(0, kDigits), is_lower_hex);
}

std::string sample_picture_path(const std::string& folder, std::string_view name) {
  return join_path(join_path(folder, name.substr(0, 2)), name);
}

bool is_whole_sample_picture(std::string_view bytes) {
  return bytes.size() > 4 && bytes.starts_with("\xFF\xD8\xFF") && bytes.ends_with("\xFF\xD9");
}

}  // namespace evalcar::protocol
