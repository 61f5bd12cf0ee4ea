#include "agent/run/silence.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "agent/run/warn_once.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

Silence::Answer Silence::look() {
  const Status answers = files_.answers(path_);
  warn_once(reason_, answers.has_value() ? "" : answers.error().message);
  if (answers.has_value()) {
    if (!since_.has_value()) return Answer::kYes;
    spdlog::info("{}: its file system answers again", path_);
    since_.reset();
    return Answer::kAgain;
  }
  const MonotonicTime now = clock_.monotonic_now();
  if (!since_.has_value()) since_ = now;
  return now - *since_ >= kPatience ? Answer::kNoForLong : Answer::kNo;
}

}  // namespace evalcar::run
