// The plan of a run: which requests share a prefix, and which are decoded together. Pure arithmetic
// over lengths and tokens, without libtorch: the same requests give the same plan on every machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "store/base/result.h"

namespace evalcar::engine {

/// A picture's place in a prompt. Equal keys are equal pictures.
struct PlannedImage {
  std::int64_t first = 0;  ///< first placeholder token
  std::uint64_t key = 0;
};

struct PlanRequest {
  std::span<const std::int32_t> tokens;
  std::vector<PlannedImage> images;  ///< in order of appearance
  std::int64_t max_new_tokens = 0;
  /// How many of them there will probably be.
  std::optional<std::int64_t> expected_tokens = {};
  std::int64_t branch_tokens = 0;  ///< of continuations that are scored, behind the tokens
  /// Tokens before this one may be shared with other requests; absent: all but the last.
  std::optional<std::int64_t> own_from = {};

  /// Cache positions that the sequence may need.
  std::int64_t need() const {
    return static_cast<std::int64_t>(tokens.size()) + max_new_tokens + branch_tokens;
  }
  /// At least one token is the request's own, to start from.
  std::int64_t most_shared() const {
    return std::max<std::int64_t>(0,
                                  own_from.value_or(static_cast<std::int64_t>(tokens.size()) - 1));
  }
};

struct PlannerLimits {
  std::int64_t max_sequences = 1;  ///< decoded together
  std::int64_t max_positions = 0;  ///< cache positions in all: sequences · capacity
  /// What a request alone may take: not less than max_positions counts.
  std::int64_t free_positions = 0;
  /// What there could be if others used nothing of the device; not less than max_positions counts.
  std::int64_t most_positions = 0;
  bool share_prefixes = true;
  std::int64_t rank = 0;        ///< this process's share of the requests …
  std::int64_t world_size = 1;  ///< … when several work on one run
};

/// Requests whose first `shared` tokens (and the pictures in them) are the same; computed once.
struct Group {
  std::int64_t shared = 0;
  std::vector<std::size_t> requests;
};

/// Groups that are prefilled and decoded together, each sequence in a slot of `capacity` positions.
struct Pack {
  std::vector<Group> groups;
  std::int64_t sequences = 0;
  std::int64_t capacity = 0;
};

/// Length of the prefix that two prompts have in common, pictures included; at most as much as both
/// may share.
std::int64_t common_prefix(const PlanRequest& a, const PlanRequest& b);

/// kUnavailable if the request needs more positions than there are: "out of memory" (for good: a
/// later try cannot help), or "device busy" where others use the memory that it needs.
Status check_fits(const PlanRequest& request, const PlannerLimits& limits);

/// Every request of this rank in exactly one pack. Long ones first, so that what does not fit fails
/// at once; of about the same length, those first whose answers are expected to be long, so that
/// those of a pack end about together; then in their own order, which is that of their data on the
/// disk. What is expected decides the order alone: there is room for max_new_tokens. check_fits()'s
/// error if a single request needs more positions than there are.
Result<std::vector<Pack>> plan_run(std::span<const PlanRequest> requests,
                                   const PlannerLimits& limits);

}  // namespace evalcar::engine
