#include "store/base/stale_temporaries.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <string_view>

namespace evalcar {
namespace {

/// The pid in a name of write_file_atomically's: ".<name>.tmp.<pid>.<count>".
std::optional<pid_t> pid_of_temporary(std::string_view name) {
  constexpr std::string_view kMiddle = ".tmp.";
  const std::size_t at = name.rfind(kMiddle);
  if (!name.starts_with('.') || at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kMiddle.size());
  const std::size_t dot = rest.find('.');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (dot == std::string_view::npos || !is_number(rest.substr(0, dot)) ||
      !is_number(rest.substr(dot + 1))) {
    return std::nullopt;
  }
  pid_t pid = 0;
  const std::string_view number = rest.substr(0, dot);
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), pid);
  if (parsed.ec != std::errc{} || pid <= 0) return std::nullopt;
  return pid;
}

}  // namespace

void remove_stale_temporaries(FileSystem& files, const std::string& folder) {
  const auto entries = files.list(folder);
  if (!entries.has_value()) return;
  for (const DirectoryEntry& entry : *entries) {
    const auto pid = pid_of_temporary(entry.name);
    if (!pid.has_value() || entry.type != FileType::kRegular) continue;
    if (::kill(*pid, 0) == 0 || errno != ESRCH) continue;
    (void)files.remove_file(join_path(folder, entry.name));
  }
}

}  // namespace evalcar
