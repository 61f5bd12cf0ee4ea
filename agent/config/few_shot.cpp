#include "agent/config/few_shot.h"

namespace evalcar::config {

std::optional<std::int64_t> settled_shots(std::optional<std::int64_t> asked,
                                          std::optional<std::int64_t> otherwise,
                                          bool some_have_examples) {
  if (!asked.has_value()) return otherwise;
  if (*asked == 0 && !otherwise.has_value() && !some_have_examples) return std::nullopt;
  return asked;
}

}  // namespace evalcar::config
