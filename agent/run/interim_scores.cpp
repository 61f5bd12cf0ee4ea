#include "agent/run/interim_scores.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace evalcar::run {
namespace {

std::string title_of(const state::Evaluation& row) { return row.checkpoint + " " + row.kind; }

}  // namespace

Status InterimScores::tell(const MeasuredWeights& measured) {
  if (waiting_.empty()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const bool stand, this->stand(measured));
  while (stand && !waiting_.empty()) {
    const Status told = tell_first(measured.row);
    if (!told.has_value() && told.error().code == ErrorCode::kCancelled) return {};  // goes on
    EVALCAR_RETURN_IF_ERROR(told);
  }
  return {};
}

void InterimScores::tell_with_result(const state::Evaluation& row) {
  while (!waiting_.empty()) {
    const Status told = tell_first(row);
    if (!told.has_value() && told.error().code == ErrorCode::kCancelled) continue;
    if (!told.has_value()) {
      spdlog::warn("{}: its interim score is not told: {}", title_of(row), told.error().message);
      waiting_.pop_front();
    }
  }
}

/// Its files were judged.
Status InterimScores::tell_first(const state::Evaluation& row) {
  const protocol::Interim& interim = waiting_.front();
  EVALCAR_ASSIGN_OR_RETURN(const bool told, directory_.publish_interim(row, interim));
  told_ |= told;
  for (const protocol::InterimScore& score : interim.tasks) {
    for (const protocol::Metric& metric : score.metrics) {
      if (!told || !metric.value.has_value()) continue;
      const std::string error = metric.stderr_value.has_value()
                                    ? fmt::format(" ± {:.4f}", *metric.stderr_value)
                                    : std::string();
      spdlog::info("{}: {} of {} of {}: {} {:.4f}{}", title_of(row), score.n, score.documents,
                   score.task, metric.name, *metric.value, error);
    }
  }
  waiting_.pop_front();
  judged_ = false;
  return {};
}

bool InterimScores::drop(const state::Evaluation& row, const std::string& why) {
  spdlog::warn("{}: its interim score is not told: {}", title_of(row), why);
  waiting_.clear();
  rehash_.reset();
  judged_ = false;
  return false;
}

/// Whether they may go out.
Result<bool> InterimScores::stand(const MeasuredWeights& measured) {
  if (!judged_) {
    EVALCAR_ASSIGN_OR_RETURN(const Judging judging, begin_judging(measured));
    if (judging != Judging::kBegun) return judging == Judging::kKnown;
    judged_ = true;
  }
  if (!rehash_.has_value()) return true;
  const auto hash = rehash_->poll();
  if (!hash.has_value()) return false;
  rehash_.reset();
  if (!hash->has_value()) return drop(measured.row, hash->error().message);
  if (**hash != measured.sha256) {
    return drop(measured.row, "the weights were rewritten while it was measured");
  }
  measured.lease = std::move(*rehashed_);
  return true;
}

Result<InterimScores::Judging> InterimScores::begin_judging(const MeasuredWeights& measured) {
  std::string which;
  // Before they are looked at.
  auto as_now = directory_.stage().with_ctimes_of_now(measured.lease);
  switch (directory_.stage().check(measured.lease, &which)) {
    case stage::Integrity::kUnchanged:
      break;
    case stage::Integrity::kOnlyCtime: {
      EVALCAR_ASSIGN_OR_RETURN(const bool known, all_known(measured.row));
      if (known) return Judging::kKnown;
      if (!as_now.has_value()) return Judging::kNotNow;
      rehashed_ = std::move(as_now).value();
      EVALCAR_ASSIGN_OR_RETURN(rehash_, measured.rehash());
      break;
    }
    case stage::Integrity::kUnknown:
      return Judging::kNotNow;  // the next turn asks again
    case stage::Integrity::kChanged:
    case stage::Integrity::kVanished:
      drop(measured.row, which + ": changed while it was measured");
      return Judging::kNotNow;
  }
  return Judging::kBegun;
}

/// Their lines were judged when they were decided: by an attempt before this one.
Result<bool> InterimScores::all_known(const state::Evaluation& row) const {
  for (const protocol::Interim& interim : waiting_) {
    EVALCAR_ASSIGN_OR_RETURN(const bool known, directory_.knows_interim(row, interim));
    if (!known) return false;
  }
  return true;
}

void InterimScores::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (rehash_.has_value()) rehash_->add_descriptors(descriptors);
}

}  // namespace evalcar::run
