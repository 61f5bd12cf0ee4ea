// Published results on their way to publish.webhook_url. The receiver is somebody else's: it may be
// slow, gone or hostile, and the loop never waits for it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "agent/run/surroundings.h"
#include "agent/webhook/outbox.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. Does nothing where there is no URL.
class Posting {
 public:
  /// `around` and `store` must outlive it. kInvalidArgument, kNotFound: the secret cannot be read,
  /// kUnsupported: nothing here can post.
  static Result<std::unique_ptr<Posting>> open(const Surroundings& around,
                                               const config::Settings& settings,
                                               const state::Store& store);

  /// Hands out what was published and notes what was taken. `run_id`: of the current run, once the
  /// database knows what was published before; absent: it is what it was.
  void step(std::optional<std::int64_t> run_id);
  /// When step() may have something to do; absent: after the next publication.
  std::optional<std::chrono::milliseconds> until_due() const;
  /// Whether the agent may end, given that nothing else is left to do: the receiver gets a while
  /// for what is left, unless it fails. The rest goes out after the next start.
  bool may_end(bool nothing_else_left);
  /// What is wrong, in words for people; "" while all is well.
  const std::string& trouble() const { return trouble_; }

 private:
  Posting(const Surroundings& around, const state::Store& store, std::int64_t attempts,
          std::unique_ptr<webhook::Outbox> outbox)
      : around_(around), store_(store), attempts_(attempts), outbox_(std::move(outbox)) {}

  void hand_out();
  bool pending() const { return outbox_ != nullptr && outbox_->pending(); }

  const Surroundings& around_;
  const state::Store& store_;
  std::int64_t attempts_;                    ///< after so many failures an end does not wait
  std::unique_ptr<webhook::Outbox> outbox_;  ///< null: results are posted nowhere
  std::optional<std::int64_t> run_id_;       ///< the current run, or the last one
  std::int64_t looked_at_ = -1;              ///< Reader::changes() when the rows were asked
  std::optional<MonotonicTime> waiting_since_;
  std::string trouble_;
};

}  // namespace evalcar::run
