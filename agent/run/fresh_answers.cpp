#include "agent/run/fresh_answers.h"

#include <algorithm>
#include <chrono>

namespace evalcar::run {
namespace {

constexpr std::chrono::milliseconds kLongestAnswerPause{1000};
/// The disk is busy with answers for one part in so many.
constexpr int kShare = 20;
constexpr std::size_t kMostAnswers = 64;
constexpr std::size_t kMostSamples = 256;

}  // namespace

Status FreshAnswers::write(state::Store& store, std::int64_t evaluation, bool all) {
  const MonotonicTime now = clock_.monotonic_now();
  const bool due = all || now - written_at_ >= pause_;
  const bool answers_due = !answers_.empty() && (due || answers_.size() >= kMostAnswers);
  const bool samples_due = !samples_.empty() && (due || samples_.size() >= kMostSamples);
  if (answers_due) {
    EVALCAR_RETURN_IF_ERROR(store.record_answers(evaluation, answers_));
    answers_.clear();
  }
  if (samples_due) {
    EVALCAR_RETURN_IF_ERROR(store.record_samples(evaluation, samples_));
    samples_.clear();
  }
  if (answers_due || samples_due) {
    written_at_ = clock_.monotonic_now();
    pause_ = std::min<MonotonicTime::duration>(kLongestAnswerPause, kShare * (written_at_ - now));
  }
  return {};
}

std::optional<MonotonicTime> FreshAnswers::due() const {
  if (answers_.empty() && samples_.empty()) return std::nullopt;
  return written_at_ + pause_;
}

}  // namespace evalcar::run
