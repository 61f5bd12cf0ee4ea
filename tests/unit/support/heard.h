// The log, for tests of what it says.
#pragma once

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>

namespace evalcar::test {

/// What the log says meanwhile, one "level text" a line.
class Heard {
 public:
  Heard() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(text_);
    auto logger = std::make_shared<spdlog::logger>("heard", sink);
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(std::move(logger));
  }
  ~Heard() { spdlog::set_default_logger(before_); }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;

  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace evalcar::test
