#include "evaluator/engine/planner.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <numeric>
#include <string>
#include <utility>

namespace evalcar::engine {
namespace {

// Below this many tokens a shared prefix saves less than the copy of its cache costs.
constexpr std::int64_t kLeastShared = 32;
// Cache positions: needs that differ by less are of about the same length.
constexpr std::int64_t kSimilarNeed = 256;

// Requests with the same pictures stand together, and among them those with the same words.
std::vector<std::size_t> order_by_prefix(std::span<const PlanRequest> requests) {
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const auto& left = requests[a];
    const auto& right = requests[b];
    const auto by_key = [](const PlannedImage& x, const PlannedImage& y) { return x.key < y.key; };
    if (std::ranges::lexicographical_compare(left.images, right.images, by_key)) return true;
    if (std::ranges::lexicographical_compare(right.images, left.images, by_key)) return false;
    return std::ranges::lexicographical_compare(left.tokens, right.tokens);
  });
  return order;
}

std::vector<Group> group_requests(std::span<const PlanRequest> requests, bool share) {
  std::vector<Group> groups;
  for (const std::size_t index : order_by_prefix(requests)) {
    if (share && !groups.empty()) {
      Group& group = groups.back();
      std::int64_t shared = common_prefix(requests[group.requests.front()], requests[index]);
      if (group.requests.size() > 1) shared = std::min(shared, group.shared);
      // A newcomer that would halve what the others share starts a group of its own.
      if (shared >= kLeastShared && shared * 2 >= group.shared) {
        group.shared = shared;
        group.requests.push_back(index);
        continue;
      }
    }
    groups.push_back({.shared = 0, .requests = {index}});
  }
  return groups;
}

std::int64_t need_of(const Group& group, std::span<const PlanRequest> requests) {
  std::int64_t need = 0;
  for (const std::size_t index : group.requests) need = std::max(need, requests[index].need());
  return need;
}

// Of the answer that takes longest.
std::int64_t expected_tokens_of(const Group& group, std::span<const PlanRequest> requests) {
  std::int64_t expected = 0;
  for (const std::size_t index : group.requests) {
    const PlanRequest& request = requests[index];
    expected = std::max(expected, request.expected_tokens.value_or(request.max_new_tokens));
  }
  return expected;
}

// Where a group stands in the run: long ones first. The exact length does not count, for pages of
// one size differ by a few words, and sorted by those a data set is read in random order; of an
// answer's length it is the power of two.
struct Place {
  std::int64_t need = 0;     // in steps of kSimilarNeed, negated
  int expected = 0;          // negated
  std::size_t of_first = 0;  // in the order of the requests
  auto operator<=>(const Place&) const = default;
};

Place place_of(const Group& group, std::span<const PlanRequest> requests) {
  const auto expected = static_cast<std::uint64_t>(expected_tokens_of(group, requests));
  return {-(need_of(group, requests) / kSimilarNeed), -static_cast<int>(std::bit_width(expected)),
          std::ranges::min(group.requests)};
}

// Tokens that have to be computed: what a rank's work is measured by.
std::int64_t cost_of(const Group& group, std::span<const PlanRequest> requests) {
  std::int64_t cost = group.shared;
  for (const std::size_t index : group.requests) cost += requests[index].need() - group.shared;
  return cost;
}

// Longest first to the rank with the least work so far; every rank computes the same deal.
std::vector<Group> deal(std::vector<Group> groups, std::span<const PlanRequest> requests,
                        const PlannerLimits& limits) {
  if (limits.world_size <= 1) return groups;
  std::vector<std::int64_t> load(static_cast<std::size_t>(limits.world_size));
  std::ranges::stable_sort(groups, std::ranges::greater{},
                           [&](const Group& group) { return cost_of(group, requests); });
  std::vector<Group> mine;
  for (Group& group : groups) {
    const auto least = std::ranges::min_element(load);
    *least += cost_of(group, requests);
    if (least - load.begin() == limits.rank) mine.push_back(std::move(group));
  }
  return mine;
}

// A group with more members than fit together becomes several; each computes the prefix again.
void split_into(std::vector<Group>& out, Group group, std::size_t most) {
  for (std::size_t first = 0; first < group.requests.size(); first += most) {
    const std::size_t last = std::min(first + most, group.requests.size());
    Group part{.shared = group.shared, .requests = {}};
    part.requests.assign(group.requests.begin() + static_cast<std::ptrdiff_t>(first),
                         group.requests.begin() + static_cast<std::ptrdiff_t>(last));
    if (part.requests.size() == 1) part.shared = 0;
    out.push_back(std::move(part));
  }
}

}  // namespace

std::int64_t common_prefix(const PlanRequest& a, const PlanRequest& b) {
  const auto mismatch = std::ranges::mismatch(a.tokens, b.tokens);
  auto common = static_cast<std::int64_t>(mismatch.in1 - a.tokens.begin());
  for (std::size_t i = 0; i < a.images.size() && a.images[i].first < common; ++i) {
    if (i < b.images.size() && a.images[i].key == b.images[i].key) continue;
    common = a.images[i].first;  // the same placeholders, for another picture
    break;
  }
  return std::min({common, a.most_shared(), b.most_shared()});
}

Status check_fits(const PlanRequest& request, const PlannerLimits& limits) {
  const std::int64_t room = std::max(limits.max_positions, limits.free_positions);
  if (request.need() <= room) return {};
  if (request.need() <= limits.most_positions) {
    return make_error(ErrorCode::kUnavailable,
                      "device busy while planning: out of the memory that others leave: " +
                          std::to_string(request.need()) +
                          " cache positions are needed, there is room for " + std::to_string(room) +
                          " now and for " + std::to_string(limits.most_positions) +
                          " without them; it is waited for");
  }
  Error error = make_error(
      ErrorCode::kUnavailable,
      "out of memory: " + std::to_string(request.need()) + " cache positions are needed (" +
          std::to_string(request.tokens.size()) + " of the prompt, " +
          (request.branch_tokens > 0
               ? std::to_string(request.branch_tokens) + " of its continuations"
               : std::to_string(request.max_new_tokens) + " to generate") +
          "), and there is room for " + std::to_string(room));
  error.retryable = false;
  return error;
}

Result<std::vector<Pack>> plan_run(std::span<const PlanRequest> requests,
                                   const PlannerLimits& limits) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (Status fits = check_fits(requests[i], limits); !fits)
      return with_context(std::move(fits).error(), "request " + std::to_string(i));
  }
  std::vector<Group> whole =
      deal(group_requests(requests, limits.share_prefixes), requests, limits);
  std::ranges::stable_sort(whole, [&](const Group& a, const Group& b) {
    return place_of(a, requests) < place_of(b, requests);
  });
  std::vector<Group> groups;
  for (Group& group : whole) {
    const std::int64_t most = std::clamp<std::int64_t>(
        limits.max_positions / need_of(group, requests), 1, limits.max_sequences);
    split_into(groups, std::move(group), static_cast<std::size_t>(most));
  }
  std::vector<Pack> packs;
  for (Group& group : groups) {
    const auto size = static_cast<std::int64_t>(group.requests.size());
    const std::int64_t need = need_of(group, requests);
    const bool fits = !packs.empty() && packs.back().sequences + size <= limits.max_sequences &&
                      (packs.back().sequences + size) * std::max(packs.back().capacity, need) <=
                          limits.max_positions;
    if (!fits) packs.emplace_back();
    packs.back().sequences += size;
    packs.back().capacity = std::max(packs.back().capacity, need);
    packs.back().groups.push_back(std::move(group));
  }
  return packs;
}

}  // namespace evalcar::engine
