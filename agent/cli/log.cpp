#include "agent/cli/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace evalcar::cli {

void set_up_log(const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(
      "evalcar", std::make_shared<spdlog::sinks::stderr_color_sink_st>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace evalcar::cli
