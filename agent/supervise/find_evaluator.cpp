#include "agent/supervise/find_evaluator.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace evalcar::supervise {

Result<std::string> find_evaluator(const FileSystem& files) {
  constexpr std::string_view kName = "evalcar-evaluator";
  if (const char* const given = std::getenv("EVALCAR_EVALUATOR"); given != nullptr && *given != 0) {
    if (::access(given, X_OK) == 0) return std::string(given);
    return make_error(ErrorCode::kNotFound,
                      "EVALCAR_EVALUATOR=" + std::string(given) + ": no such program");
  }
  std::vector<std::string> places;
  if (const auto self = files.real_path("/proc/self/exe"); self.has_value()) {
    const std::string folder = parent_path(*self);
    places.push_back(join_path(folder, kName));
    places.push_back(join_path(folder, "../libexec/evalcar/" + std::string(kName)));
  }
  if (const char* const path = std::getenv("PATH"); path != nullptr) {
    std::string_view rest = path;
    while (!rest.empty()) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) places.push_back(join_path(rest.substr(0, colon), kName));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  }
  for (const std::string& place : places) {
    if (::access(place.c_str(), X_OK) == 0) return place;
  }
  return make_error(ErrorCode::kNotFound,
                    std::string(kName) + " was not found beside this program, in " +
                        "../libexec/evalcar or on PATH; set EVALCAR_EVALUATOR to its place");
}

}  // namespace evalcar::supervise
