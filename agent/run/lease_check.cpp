#include "agent/run/lease_check.h"

#include <utility>

namespace evalcar::run {
namespace {

using std::chrono::milliseconds;

/// Hashing reads what loading reads.
milliseconds rehash_limit(const config::LimitSettings& limits) {
  const auto loading = limits.stage_timeouts.find("loading");
  return loading == limits.stage_timeouts.end() ? milliseconds(std::chrono::hours(1))
                                                : milliseconds(loading->second);
}

}  // namespace

LeaseCheck::LeaseCheck(const Surroundings& around, const config::Settings& settings,
                       std::string kind)
    : around_(around),
      base_model_(settings.evaluate.base_model),
      kind_(std::move(kind)),
      rehash_limit_(rehash_limit(settings.limits)) {}

Result<std::optional<std::string>> LeaseCheck::judge(const stage::Stage& stage,
                                                     const stage::Lease& lease,
                                                     const std::string& measured_sha256) {
  if (!verdict_.has_value() && !hashing()) EVALCAR_RETURN_IF_ERROR(look(stage, lease));
  if (hashing()) take_hash(measured_sha256);
  return verdict_;
}

Status LeaseCheck::look(const stage::Stage& stage, const stage::Lease& lease) {
  std::string which;
  switch (stage.check(lease, &which)) {
    case stage::Integrity::kUnchanged:
      verdict_ = "";
      break;
    case stage::Integrity::kOnlyCtime: {
      EVALCAR_ASSIGN_OR_RETURN(rehash_, start_rehash(lease));
      break;
    }
    case stage::Integrity::kUnknown:
      // The next turn asks again; where the whole directory is silent for long, the job lets go.
      return make_error(ErrorCode::kUnavailable, "the files that were measured: " + which);
    case stage::Integrity::kChanged:
    case stage::Integrity::kVanished:
      verdict_ = which + ": changed while it was measured; discarded";
      break;
  }
  return {};
}

Result<Rehash> LeaseCheck::start_rehash(const stage::Lease& lease) const {
  return Rehash::start(around_.self_command, {lease.dir, kind_, base_model_}, around_.clock,
                       rehash_limit_);
}

void LeaseCheck::take_hash(const std::string& measured_sha256) {
  const auto hash = rehash_->poll();
  if (!hash.has_value()) return;
  rehash_.reset();
  verdict_ = "";
  if (!hash->has_value()) {
    verdict_ = hash->error().message;
  } else if (**hash != measured_sha256) {
    verdict_ = "the weights hash to " + (**hash).substr(0, 12) + "…, but " +
               measured_sha256.substr(0, 12) + "… were measured: rewritten meanwhile; discarded";
  }
}

void LeaseCheck::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (hashing()) rehash_->add_descriptors(descriptors);
}

}  // namespace evalcar::run
