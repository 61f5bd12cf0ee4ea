#include "agent/watch/look_pace.h"

#include <algorithm>

namespace evalcar::watch {
namespace {

using std::chrono::milliseconds;

/// Looking takes at most this part of one processor.
constexpr int kPauseOverLook = 20;
constexpr milliseconds kLongestPause{2'000};

}  // namespace

void LookPace::looked(std::chrono::nanoseconds took, std::chrono::nanoseconds worked, bool local) {
  const auto pause = local ? std::max(kPauseOverLook * worked, took) : kPauseOverLook * took;
  pause_ = std::clamp(std::chrono::ceil<milliseconds>(pause), shortest_,
                      std::max(shortest_, kLongestPause));
}

}  // namespace evalcar::watch
