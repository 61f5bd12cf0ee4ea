#include "agent/cli/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>

#include "store/base/text.h"

namespace evalcar::cli {
namespace {

/// "%*": the message, whose names of files no terminal obeys. Its lines stay lines.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    std::string_view text(message.payload.data(), message.payload.size());
    while (true) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string line = printable(text.substr(0, end));
      out.append(line.data(), line.data() + line.size());
      if (end == text.size()) return;
      out.push_back('\n');
      text.remove_prefix(end + 1);
    }
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

}  // namespace

void set_up_log(const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(
      "evalcar", std::make_shared<spdlog::sinks::stderr_color_sink_st>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<PrintableMessage>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace evalcar::cli
