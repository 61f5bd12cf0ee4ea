#include "agent/cli/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "agent/cli/progress_line.h"
#include "agent/service/log_file.h"
#include "agent/service/repeat_limiter.h"
#include "store/base/clock.h"
#include "store/base/text.h"

namespace evalcar::cli {
namespace {

/// Calls `take` with each line of the text, made printable.
template <typename Take>
void for_each_line(std::string_view text, const Take& take) {
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    take(printable(text.substr(0, end)));
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

/// "%*": the message, whose names of files no terminal obeys. Its lines stay lines.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    bool first = true;
    for_each_line({message.payload.data(), message.payload.size()}, [&](const std::string& line) {
      if (!std::exchange(first, false)) out.push_back('\n');
      out.append(line.data(), line.data() + line.size());
    });
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

/// "<4>text": the journal knows time and unit itself, and takes each line for an entry.
class JournalFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const char priority = priority_of(message.level);
    for_each_line({message.payload.data(), message.payload.size()}, [&](const std::string& line) {
      const std::string entry = std::string("<") + priority + ">" + line + "\n";
      out.append(entry.data(), entry.data() + entry.size());
    });
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JournalFormatter>();
  }

 private:
  /// sd-daemon(3)
  static char priority_of(spdlog::level::level_enum level) {
    switch (level) {
      case spdlog::level::critical:
        return '2';
      case spdlog::level::err:
        return '3';
      case spdlog::level::warn:
        return '4';
      case spdlog::level::info:
        return '6';
      default:
        return '7';
    }
  }
};

class FileSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit FileSink(std::unique_ptr<agent_service::LogFile> file) : file_(std::move(file)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    file_->write({text.data(), text.size()});
  }
  void flush_() override {}

 private:
  std::unique_ptr<agent_service::LogFile> file_;
};

/// Keeps repeated complaints back from the sink behind it.
class LimitingSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LimitingSink(spdlog::sink_ptr next) : next_(std::move(next)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (message.level < spdlog::level::warn) return next_->log(message);
    const std::string_view text(message.payload.data(), message.payload.size());
    const auto kept_back = limiter_.admit(text, clock_.monotonic_now());
    if (!kept_back.has_value()) return;
    if (*kept_back == 0) return next_->log(message);
    const std::string more = std::string(text) + " (and " + std::to_string(*kept_back) +
                             " times more since it was last said)";
    spdlog::details::log_msg longer = message;
    longer.payload = {more.data(), more.size()};
    next_->log(longer);
  }
  void flush_() override { next_->flush(); }
  void set_formatter_(std::unique_ptr<spdlog::formatter> formatter) override {
    next_->set_formatter(std::move(formatter));
  }
  void set_pattern_(const std::string& pattern) override { next_->set_pattern(pattern); }

 private:
  spdlog::sink_ptr next_;
  SystemClock clock_;
  agent_service::RepeatLimiter limiter_;
};

/// systemd names the device and the inode of the stream that it gave us; a redirected standard
/// error is another one.
bool stderr_is_the_journal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat info{};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &info) != 0) return false;
  return stream == std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

std::unique_ptr<spdlog::formatter> lines_with_time(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<PrintableMessage>('*').set_pattern(pattern);
  return formatter;
}

}  // namespace

Status set_up_log(const LogOptions& options) {
  spdlog::sink_ptr sink;
  std::unique_ptr<spdlog::formatter> formatter;
  if (!options.file.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(
        auto file,
        agent_service::LogFile::open({.path = options.file, .max_bytes = options.max_bytes}));
    sink = std::make_shared<FileSink>(std::move(file));
    formatter = lines_with_time("%Y-%m-%dT%H:%M:%S.%eZ %l %*");
  } else if (stderr_is_the_journal()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
    formatter = std::make_unique<JournalFormatter>();
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_st>();
    const std::string begin = stderr_rewrites_lines() ? kClearLine : "";  // of a progress line
    formatter = lines_with_time(begin + "%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %*");
  }
  auto logger = std::make_shared<spdlog::logger>("evalcar", std::make_shared<LimitingSink>(sink));
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::from_str(options.level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace evalcar::cli
