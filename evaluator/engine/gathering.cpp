#include "evaluator/engine/gathering.h"

#include <string>

namespace evalcar::engine {

Status Gathering::take(std::int64_t rank, std::size_t request) {
  if (rank < 0 || rank >= world_size_ || request >= from_.size()) {
    return make_error(ErrorCode::kInternal,
                      "an answer to request " + std::to_string(request) + " from rank " +
                          std::to_string(rank) + ": there are " + std::to_string(from_.size()) +
                          " requests and " + std::to_string(world_size_) + " ranks");
  }
  if (from_[request] != kNobody) {
    return make_error(ErrorCode::kInternal,
                      "request " + std::to_string(request) + " is answered twice: by rank " +
                          std::to_string(from_[request]) + " and by rank " + std::to_string(rank));
  }
  from_[request] = rank;
  return {};
}

Status Gathering::complete(const std::function<bool(std::size_t)>& wanted) const {
  for (std::size_t i = 0; i < from_.size(); ++i) {
    if (from_[i] == kNobody && wanted(i)) {
      return make_error(ErrorCode::kInternal,
                        "request " + std::to_string(i) + " of " + std::to_string(from_.size()) +
                            " has no answer from any of " + std::to_string(world_size_) + " ranks");
    }
  }
  return {};
}

}  // namespace evalcar::engine
