#include "evaluator/engine/outstanding.h"

#include <algorithm>

namespace evalcar::engine {

bool Outstanding::is_awaited(std::size_t request) const {
  return !requests_[request].answered_before && is_left(request);
}

bool Outstanding::any() const {
  for (std::size_t request = 0; request < requests_.size(); ++request) {
    if (is_awaited(request)) return true;
  }
  return false;
}

bool Outstanding::any_of(const Pack& pack) const {
  return std::ranges::any_of(pack.groups, [this](const Group& group) {
    return std::ranges::any_of(group.requests,
                               [this](std::size_t request) { return is_awaited(request); });
  });
}

std::int64_t Outstanding::computed_again(std::span<const Pack> packs) const {
  std::int64_t again = 0;
  for (const Pack& pack : packs) {
    if (!any_of(pack)) continue;
    for (const Group& group : pack.groups)
      again += std::ranges::count_if(
          group.requests, [this](std::size_t i) { return requests_[i].answered_before; });
  }
  return again;
}

void Outstanding::answer(std::size_t request, const Result<Answer>& answer) {
  if (done_[request]) return;
  done_[request] = true;
  if (!requests_[request].answered_before) events_.answered(request, answer);
}

void Outstanding::pass_over(const Pack& pack) {
  for (const Group& group : pack.groups) {
    for (const std::size_t request : group.requests) done_[request] = true;
  }
}

}  // namespace evalcar::engine
