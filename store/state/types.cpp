#include "store/state/types.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "store/base/file_system.h"
#include "store/base/hash.h"

namespace evalcar::state {
namespace {

using enum EvaluationState;

constexpr std::array<std::string_view, 12> kNames = {
    "found",     "complete", "leased",      "loading", "evaluating", "scored",
    "published", "failed",   "quarantined", "skipped", "superseded", "lost"};

/// The ends that are no success; each comes with a reason.
bool is_other_end(EvaluationState state) {
  return state == kQuarantined || state == kSkipped || state == kSuperseded || state == kLost;
}

}  // namespace

std::string_view state_name(EvaluationState state) {
  return kNames.at(static_cast<std::size_t>(state));
}

std::optional<EvaluationState> state_from_name(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<EvaluationState>(found - kNames.begin());
}

bool is_end_state(EvaluationState state) { return state == kPublished || is_other_end(state); }

bool transition_allowed(EvaluationState from, EvaluationState to) {
  switch (from) {
    case kFound:
      return to == kComplete || to == kFailed || is_other_end(to);
    case kComplete:
      return to == kLeased || to == kFailed || is_other_end(to);
    case kLeased:
      return to == kLoading || to == kFailed || is_other_end(to);
    case kLoading:  // back to leased: the attempt was interrupted, nothing is wrong with the
                    // weights
      return to == kEvaluating || to == kLeased || to == kFailed || is_other_end(to);
    case kEvaluating:
      return to == kScored || to == kLeased || to == kFailed || is_other_end(to);
    case kScored:  // the numbers are there: they can only be handed out
      return to == kPublished;
    case kFailed:
      return to == kComplete || to == kLeased || to == kLoading || is_other_end(to);
    case kPublished:
      return false;
    case kQuarantined:
    case kSkipped:
    case kSuperseded:
    case kLost:  // a person asked for a retry or a backfill
      return to == kComplete;
  }
  return false;
}

double Evaluation::progress() const {
  if (state == kScored || state == kPublished) return 1.0;
  if (progress_total <= 0) return 0.0;
  return std::clamp(static_cast<double>(progress_done) / static_cast<double>(progress_total), 0.0,
                    1.0);
}

bool lies_elsewhere(std::string_view path, std::string_view name) {
  return base_name(path) != name;
}

std::string content_fingerprint(std::vector<FileIdentity> files) {
  std::sort(files.begin(), files.end(),
            [](const FileIdentity& a, const FileIdentity& b) { return a.path < b.path; });
  Sha256 hash;
  for (const FileIdentity& file : files) {
    hash.update(file.path);
    hash.update(std::string_view("\0", 1));
    hash.update(std::to_string(file.inode) + " " + std::to_string(file.size_bytes) + " " +
                std::to_string(file.mtime_ns) + "\n");
  }
  return to_hex(hash.finish()).substr(0, 32);
}

std::string encode_files(const std::vector<FileIdentity>& files) {
  auto list = nlohmann::json::array();
  for (const FileIdentity& file : files) {
    list.push_back({file.path, file.inode, file.size_bytes, file.mtime_ns});
  }
  // A name that is not UTF-8 is written with a mark in place of the bytes, never thrown on.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<FileIdentity> decode_files(std::string_view text) {
  const auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return {};
  std::vector<FileIdentity> files;
  for (const auto& file : list) {
    const bool known = file.is_array() && file.size() == 4 && file[0].is_string() &&
                       file[1].is_number_integer() && file[2].is_number_integer() &&
                       file[3].is_number_integer();
    if (!known) return {};
    files.push_back({file[0].get<std::string>(), file[1].get<std::uint64_t>(),
                     file[2].get<std::uint64_t>(), file[3].get<std::int64_t>()});
  }
  return files;
}

bool is_same_question(const MetricRow& a, const MetricRow& b) {
  return a.question.empty() || b.question.empty() || a.question == b.question;
}

std::string settings_sha256(const protocol::EvaluationSettings& settings, std::string_view dtype) {
  protocol::EvaluationSettings identity = settings;
  identity.tasks.clear();   // part of the evaluation's own key; a result is of one task
  identity.batch_size = 0;  // how the work is cut does not change what is measured
  return sha256_hex(protocol::encode_settings(identity) + "\n" + std::string(dtype));
}

}  // namespace evalcar::state
