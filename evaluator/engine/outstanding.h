// Which requests of a run have no answer yet, and so which packs have to be computed. Without
// libtorch.
//
// What stands beside a row can change its last bits. So a run that goes on after an interruption is
// planned over all of its requests, those with an answer too: a pack that is done is passed over,
// and one that is not is computed whole, with the company that each request had the first time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/planner.h"

namespace evalcar::engine {

/// Not thread-safe.
class Outstanding {
 public:
  /// Both must outlive this. Groups of packs name requests by their place in `requests`.
  Outstanding(std::span<const Request> requests, const RunEvents& events)
      : requests_(requests), events_(events), done_(requests.size(), false) {}

  /// RunEvents::wanted
  bool is_wanted(std::size_t request) const { return !events_.wanted || events_.wanted(request); }
  /// Whether the answer of any request is awaited: of the run, or of a pack.
  bool any() const;
  bool any_of(const Pack& pack) const;
  /// How many answers that are known are computed again, as company in packs that are.
  std::int64_t computed_again(std::span<const Pack> packs) const;
  /// Whether it is neither computed nor passed over: what is planned anew where memory ran out.
  bool is_left(std::size_t request) const { return !done_[request] && is_wanted(request); }

  /// It was computed: tells its answer, or what is wrong with it, if that is awaited. Computed once
  /// more, as company in a pack that did not come to its end, it is not told again.
  void answer(std::size_t request, const Result<Answer>& answer);
  /// The pack is not computed, as no answer of it is awaited.
  void pass_over(const Pack& pack);

 private:
  bool is_awaited(std::size_t request) const;

  const std::span<const Request> requests_;
  const RunEvents& events_;
  std::vector<bool> done_;  // computed or passed over
};

}  // namespace evalcar::engine
