// Scores of a part of the documents, from the evaluator's word to their line: they go out only if
// the files are the ones that were leased, as a result does.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/run/output_directory.h"
#include "agent/run/rehash.h"
#include "agent/stage/stage.h"
#include "store/protocol/messages.h"
#include "store/state/types.h"

namespace evalcar::run {

/// What an evaluation measures, and how it is made sure that it still is that.
struct MeasuredWeights {
  const state::Evaluation& row;
  const std::string& sha256;
  stage::Lease& lease;  ///< with other ctimes, once the weights were hashed again and are the same
  std::function<Result<Rehash>()> rehash;  ///< begins to hash them
};

/// Not thread-safe.
class InterimScores {
 public:
  /// `told_before`: one went out in an earlier attempt. `directory` must outlive it.
  InterimScores(OutputDirectory& directory, bool told_before)
      : directory_(directory), told_(told_before) {}

  void take(protocol::Interim interim) { waiting_.push_back(std::move(interim)); }
  bool any_wait() const { return !waiting_.empty(); }
  /// One went out, now or in an earlier attempt.
  bool told() const { return told_; }
  bool hashing() const { return rehash_.has_value(); }
  void add_descriptors(std::vector<pollfd>& descriptors) const;

  /// Publishes those that wait, in their order, once their files are judged: that may take turns.
  /// If the files are others they are dropped, and the result will be judged by itself. The answers
  /// that they are of are stored.
  Status tell(const MeasuredWeights& measured);
  /// What the result's files are found to be goes for the scores before it.
  void leave_judging_to_result() { rehash_.reset(); }
  /// The result stands: publishes those that still wait, so that the same lines are there whenever
  /// it was looked.
  void tell_with_result(const state::Evaluation& row);

 private:
  Status tell_first(const state::Evaluation& row);
  Result<bool> stand(const MeasuredWeights& measured);
  enum class Judging {
    kBegun,   ///< the files are those of the lease, or are being hashed
    kKnown,   ///< no need: their lines were decided before
    kNotNow,  ///< none of them may go out in this turn
  };
  Result<Judging> begin_judging(const MeasuredWeights& measured);
  Result<bool> all_known(const state::Evaluation& row) const;
  bool drop(const state::Evaluation& row, const std::string& why);

  OutputDirectory& directory_;
  std::deque<protocol::Interim> waiting_;  ///< not yet published, in their order
  bool judged_ = false;                    ///< their files are those of the lease, or are hashed
  std::optional<Rehash> rehash_;
  std::optional<stage::Lease> rehashed_;  ///< the lease, as it was before that began
  bool told_;
};

}  // namespace evalcar::run
