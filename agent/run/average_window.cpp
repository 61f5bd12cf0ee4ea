#include "agent/run/average_window.h"

#include <algorithm>

namespace evalcar::run {
namespace {

constexpr std::size_t kMostOpen = 4;

}  // namespace

std::set<std::size_t> members_to_come(const std::vector<std::int64_t>& steps,
                                      const std::set<std::int64_t>& open, std::size_t last,
                                      std::size_t newest) {
  std::set<std::size_t> members;
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, steps.size()); ++i) members.insert(i);
  };
  add(steps.size() - std::min(newest, steps.size()), steps.size());
  std::size_t looked = 0;
  for (auto step = open.rbegin(); step != open.rend() && looked < kMostOpen; ++step, ++looked) {
    const auto behind = std::ranges::upper_bound(steps, *step) - steps.begin();
    const auto place = static_cast<std::size_t>(behind);
    // It may be one of them itself, about to become another.
    add(place - std::min(last, place), place + last - 1);
  }
  return members;
}

}  // namespace evalcar::run
