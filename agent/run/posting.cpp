#include "agent/run/posting.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "agent/run/warn_once.h"
#include "agent/webhook/signature.h"

namespace evalcar::run {
namespace {

/// However slowly the receiver takes what is left, the end of a run waits no longer.
constexpr std::chrono::seconds kPatience{20};
/// Between looks at what was taken: a receiver that fails may do so for days.
constexpr std::chrono::milliseconds kPostPause{500};
constexpr std::chrono::milliseconds kPauseOfFailing{5000};
/// About an hour: a proxy in front of a receiver that is being replaced may say 400, too.
constexpr std::int64_t kTriesOfRefused = 20;

Result<std::unique_ptr<webhook::Outbox>> open_outbox(const Surroundings& around,
                                                     const config::Settings& settings,
                                                     const std::string& database) {
  const config::PublishSettings& publish = settings.publish;
  // Without tasks there is no series, and what jobs ask for is told to those who asked.
  if (publish.webhook_url.empty() || settings.evaluate.tasks.empty()) {
    return std::unique_ptr<webhook::Outbox>();
  }
  webhook::CourierOptions options;
  options.url = publish.webhook_url;
  options.version = around.version;
  options.tries_of_refused = kTriesOfRefused;
  if (!publish.webhook_secret_file.empty()) {
    auto secret = webhook::read_secret(around.files, publish.webhook_secret_file);
    if (!secret.has_value()) return with_context(secret.error(), "publish.webhook_secret_file");
    options.secret = std::move(*secret);
  }
  EVALCAR_ASSIGN_OR_RETURN(auto poster, around.make_poster());
  return webhook::Outbox::open(around.files, database, std::move(options), std::move(poster));
}

}  // namespace

Result<std::unique_ptr<Posting>> Posting::open(const Surroundings& around,
                                               const config::Settings& settings,
                                               const state::Store& store) {
  EVALCAR_ASSIGN_OR_RETURN(auto outbox, open_outbox(around, settings, store.path()));
  return std::unique_ptr<Posting>(
      new Posting(around, store, settings.limits.attempts, std::move(outbox)));
}

void Posting::step(std::optional<std::int64_t> run_id) {
  if (run_id.has_value()) run_id_ = run_id;
  if (outbox_ != nullptr && (outbox_->begun() || run_id.has_value())) hand_out();
}

void Posting::hand_out() {
  const std::int64_t changes = store_.read().changes();
  if (changes == looked_at_ && !outbox_->pending()) return;
  const Status stepped = outbox_->step(*run_id_);
  if (stepped.has_value()) looked_at_ = changes;
  warn_once(trouble_, stepped.has_value() ? outbox_->trouble() : stepped.error().message);
}

std::optional<std::chrono::milliseconds> Posting::until_due() const {
  if (!pending()) return std::nullopt;
  return outbox_->failures() > 0 ? kPauseOfFailing : kPostPause;
}

bool Posting::may_end(bool nothing_else_left) {
  if (nothing_else_left && outbox_ != nullptr && outbox_->begun()) hand_out();
  if (!nothing_else_left || !pending()) {
    waiting_since_.reset();
    return nothing_else_left;
  }
  const MonotonicTime now = around_.clock.monotonic_now();
  if (!waiting_since_.has_value()) waiting_since_ = now;
  if (outbox_->failures() < attempts_ && now - *waiting_since_ < kPatience) return false;
  warn_once(trouble_, "webhook: not all results were taken; they are posted after the next start");
  return true;
}

}  // namespace evalcar::run
