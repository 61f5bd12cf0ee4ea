#include "agent/run/rehash.h"

#include <sys/wait.h>

#include <nlohmann/json.hpp>

namespace evalcar::run {
namespace {

constexpr std::size_t kHashSize = 64;
constexpr std::size_t kTail = 4096;

/// The value of "weights_sha256" in JSON text, or "". Keys before it may run to megabytes (one
/// entry a tensor), so the text is searched, piece by piece, and not parsed.
std::string find_hash(std::string_view text) {
  std::size_t at = text.find("\"weights_sha256\"");
  if (at == std::string_view::npos) return "";
  at = text.find_first_not_of(": \"", at + 16);
  if (at == std::string_view::npos || text.size() - at <= kHashSize) return "";
  const std::string_view hash = text.substr(at, kHashSize);
  return hash.find_first_not_of("0123456789abcdef") == std::string_view::npos ? std::string(hash)
                                                                              : "";
}

/// The first "reason" of the JSON document, if it is a text: that of the whole checkpoint. Or "".
std::string find_reason(std::string_view text) {
  constexpr std::string_view kKey = "\"reason\":";
  std::size_t at = text.find(kKey);
  if (at == std::string_view::npos || text.size() == at + kKey.size()) return "";
  at += kKey.size();
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  if (text[at] != '"' || end >= text.size()) return "";
  const auto reason = nlohmann::json::parse(text.substr(at, end + 1 - at), nullptr, false);
  return reason.is_string() ? reason.get<std::string>() : "";
}

}  // namespace

Result<Rehash> Rehash::start(const std::vector<std::string>& program, const LeasedWeights& weights,
                             const Clock& clock, std::chrono::milliseconds limit) {
  std::vector<std::string> command = program;
  command.insert(command.end(),
                 {"inspect", weights.dir, "--weights", weights.kind, "--hash", "--json"});
  if (!weights.base_model.empty()) {
    command.insert(command.end(), {"--model_name_or_class", weights.base_model});
  }
  EVALCAR_ASSIGN_OR_RETURN(auto child, supervise::ChildProcess::spawn(command, -1));
  return Rehash(std::move(child), clock, limit);
}

std::optional<Result<std::string>> Rehash::poll() {
  const std::optional<int> status = child_.try_wait();
  for (bool more = true; more && !ended_;) {
    const std::string bytes = supervise::read_available(child_.output(), 1U << 20U, ended_);
    more = status.has_value() && !bytes.empty();
    tail_ += bytes;
    if (hash_.empty()) hash_ = find_hash(tail_);
    if (reason_.empty()) reason_ = find_reason(tail_);
    if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
  }
  if (!status.has_value()) {
    if (clock_->monotonic_now() < deadline_) return std::nullopt;
    child_.kill_group();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit_).count();
    return Result<std::string>(make_error(
        ErrorCode::kUnavailable, "hashing again took more than " + std::to_string(seconds) +
                                     " s (limits.stage_timeouts, loading); does storage hang?"));
  }
  // Whatever the exit code: 3 says that something beside the weights is missing.
  if (WIFEXITED(*status) && !hash_.empty()) return Result<std::string>(hash_);
  return Result<std::string>(
      make_error(ErrorCode::kUnavailable,
                 "hashing again failed: " +
                     (reason_.empty() ? supervise::describe_wait_status(*status) : reason_)));
}

void Rehash::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (!ended_) descriptors.push_back({child_.output(), POLLIN, 0});
}

}  // namespace evalcar::run
