#include "agent/watch/completeness.h"

#include <string_view>

namespace evalcar::watch {
namespace {

using checkpoint::Completeness;

constexpr std::string_view kInPart =
    "rewritten in part: some of its weights are of the save before";

/// Not whole: while something moves, or may still, it is waited for.
Decision decide_unfinished(const Evidence& e, bool settled, const std::string& reason) {
  if (!settled) return {Verdict::kWaiting, reason};
  if (!e.newer_complete) return {Verdict::kTorn, reason};
  return {Verdict::kOvertaken, "a newer checkpoint is complete, and this one never was: " + reason};
}

Decision decide_whole(const Evidence& e, bool settled) {
  const bool in_order = e.rewrite_done && e.doubt.empty();
  // A shard that was not yet rewritten is as whole as its rewritten neighbour, and stays so where
  // the trainer was killed between them: they are no checkpoint, however long nothing moves. Unless
  // all is as one save leaves it: then it was what had been there before that was of two.
  if (e.rewritten && e.replaced == Replaced::kSome && !settled) {
    return {Verdict::kWaiting, std::string(kInPart)};
  }
  if (e.rewritten && e.replaced == Replaced::kSome && !in_order && !e.before_may_be_stale) {
    return {Verdict::kTorn, std::string(kInPart) + "; if they belong together, touch all of them"};
  }
  if (!e.doubt.empty() && !settled) {
    return {Verdict::kWaiting,
            e.doubt + ": maybe not of one save; waiting until it is unchanged for a while"};
  }
  if (e.mixed) {
    return decide_unfinished(
        e, settled, e.doubt + ": of two saves; if they belong together, touch all of them");
  }
  if (e.marker_wanted) {
    if (e.marker_there) return {Verdict::kComplete, ""};
    // A save that was interrupted never gets it: once nothing moves, nobody need wait for it.
    return decide_unfinished(e, settled, "the end marker (watch.end_marker) is not there");
  }
  // The small files that follow the weights would be seen to change right away, as if it were
  // rewritten once more; and a rewrite may begin with those that go before.
  if (e.rewritten && !e.rewrite_done && !settled) {
    return {Verdict::kWaiting, "rewritten in place; waiting until it is unchanged for a while"};
  }
  // The tokenizer is written after the weights, trainer_state.json after everything; shards of
  // DCP's safetensors writer do not tell how many there will be. lmms-engine's files and DCP's
  // .metadata are marks of their own.
  const bool has_no_mark =
      e.layout != checkpoint::Layout::kLmmsEngineFsdp2 && e.layout != checkpoint::Layout::kDcp;
  const bool rests = settled || e.unchanged_for >= e.rest_of_whole_save.value_or(e.settle_time);
  const bool marked = e.trainer_state && !e.trainer_state_is_copied;
  if (has_no_mark && !marked && !e.newer_written_later && !rests) {
    const char* const why = e.trainer_state
                                ? "trainer_state.json is a copy that has kept its time, "
                                  "and need not be the last one"
                                : "no trainer_state.json yet";
    return {Verdict::kWaiting, why + std::string("; it must be unchanged for a while")};
  }
  return {Verdict::kComplete, ""};
}

}  // namespace

Decision decide(const Evidence& e) {
  const bool settled = e.unchanged_for >= e.settle_time;
  switch (e.completeness) {
    case Completeness::kComplete:
      if (!e.left.empty()) return {Verdict::kNotStarted, e.left};
      return decide_whole(e, settled);
    case Completeness::kIncomplete:
      return decide_unfinished(e, settled, e.reason);
    case Completeness::kPending:
      if (e.writer_done || e.newer_complete || settled) {
        return {Verdict::kNotStarted, "the EMA folder is empty: EMA has not started at this step"};
      }
      return {Verdict::kWaiting, e.reason};
    case Completeness::kAbsent:
      break;
  }
  return {Verdict::kNotStarted, "these weights are not in this checkpoint"};
}

}  // namespace evalcar::watch
