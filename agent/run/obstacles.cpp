#include "agent/run/obstacles.h"

#include <algorithm>

#include "agent/run/retry_pause.h"

namespace evalcar::run {
namespace {

bool is_of_the_moment(const supervise::JobFailed& obstacle) {
  return obstacle.kind == protocol::kNoEvaluator || obstacle.kind == protocol::kDeviceBusy;
}

}  // namespace

std::chrono::milliseconds Obstacles::meet(const supervise::JobFailed& obstacle) {
  of_data_ = obstacle.kind == protocol::kData;
  standing_ = "nothing can be evaluated: " + obstacle.message;
  const auto pause =
      std::min<std::chrono::milliseconds>(kLongestObstacle, pause_after(limits_, ++met_));
  until_ = clock_.monotonic_now() + pause;
  return pause;
}

void Obstacles::clear() {
  met_ = 0;
  of_data_ = false;
  standing_.clear();
}

void Obstacles::take_for_repaired() {
  end_pause();
  of_data_ = false;
  standing_.clear();
}

bool Obstacles::may_pass(const supervise::JobFailed& obstacle) const {
  return is_of_the_moment(obstacle) && met_ < limits_.attempts;
}

bool Obstacles::is_of_configuration(const supervise::JobFailed& obstacle) {
  return !is_of_the_moment(obstacle) && obstacle.kind != protocol::kData &&
         obstacle.kind != protocol::kDeviceLost;
}

}  // namespace evalcar::run
