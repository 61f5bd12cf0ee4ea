#include "agent/run/residence.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace evalcar::run {

void Residence::step(bool nothing_waits) {
  if (supervisor_.busy()) return;  // a job that was cancelled has not ended yet
  const auto end = due();
  const bool long_idle = end.has_value() && clock_.monotonic_now() >= *end;
  const bool asked = std::exchange(asked_, false);
  const bool stays = settings_.keep_resident || !nothing_waits;
  if (!supervisor_.resident() || (!asked && !long_idle && stays)) return;
  if (asked) spdlog::info("the device's memory is given back, as the signal asks");
  if (long_idle) spdlog::info("nothing was evaluated for evaluate.resident_idle");
  supervisor_.rest();
}

std::optional<MonotonicTime> Residence::due() const {
  if (!settings_.resident_idle.has_value() || !supervisor_.resident()) return std::nullopt;
  return idle_since_ + *settings_.resident_idle;
}

}  // namespace evalcar::run
