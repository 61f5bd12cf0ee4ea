#include "agent/request/inbox.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "store/base/hash.h"
#include "store/base/text.h"

namespace evalcar::request {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPollWatched{30'000};   ///< a net under the hints
constexpr milliseconds kPollUnwatched{1'000};  ///< no inotify left
constexpr std::size_t kMaxEntries = 1'000;
constexpr std::size_t kMaxALook = 32;
constexpr std::size_t kRejectedKept = 20;
constexpr std::chrono::minutes kAnswerKept{10};  ///< its command was killed

bool is_plain(std::string_view stem) {
  return !stem.empty() && stem.size() <= 80 &&
         stem.find_first_not_of(
             "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") ==
             std::string_view::npos;
}

std::string stem_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

}  // namespace

Inbox::Inbox(FileSystem& files, const Clock& clock, std::unique_ptr<watch::Notifier> notifier,
             std::string folder)
    : files_(files),
      clock_(clock),
      notifier_(std::move(notifier)),
      folder_(std::move(folder)),
      looked_at_(clock.monotonic_now()) {}

bool Inbox::look_due() {
  const watch::Notifier::Hints hints = notifier_->take();
  hinted_ |= hints.overflowed || !hints.folders.empty();
  return until_due() == milliseconds(0);
}

milliseconds Inbox::until_due() const {
  if (hinted_) return milliseconds(0);
  const MonotonicTime due = looked_at_ + (watched_ ? kPollWatched : kPollUnwatched);
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(due - clock_.monotonic_now()));
}

std::size_t Inbox::step(const CarryOut& carry_out) {
  if (!look_due()) return 0;
  looked_at_ = clock_.monotonic_now();
  hinted_ = false;
  std::size_t carried_out = 0;
  const Status looked = look(carry_out, carried_out);
  const std::string trouble = looked.has_value() ? "" : looked.error().message;
  if (trouble != trouble_ && !trouble.empty()) {
    spdlog::warn("{}; commands that change something find no agent", trouble);
  }
  trouble_ = trouble;
  return carried_out;
}

Status Inbox::look(const CarryOut& carry_out, std::size_t& carried_out) {
  EVALCAR_RETURN_IF_ERROR(make_directories(files_, folder_));
  watched_ = notifier_->watch(folder_);  // before looking: what comes later gives a hint
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files_.list(folder_, kMaxEntries));
  std::size_t seen = 0;
  Status first;
  for (const DirectoryEntry& entry : entries) {
    const bool is_request = entry.name.ends_with(kRequestEnding);
    if (!is_request && !entry.name.ends_with(kTakenEnding)) continue;
    if (++seen > kMaxALook) {
      hinted_ = true;  // the rest in the next turn
      break;
    }
    Status done = entry.type != FileType::kRegular ? reject(entry.name, "not a regular file")
                  : !is_plain(stem_of(entry.name)) ? reject(entry.name, "not the name of a request")
                                                   : take(entry.name, carry_out, carried_out);
    if (first.has_value()) first = std::move(done);  // one that cannot be moved stops no other
  }
  tidy(entries);
  return first;
}

Status Inbox::take(const std::string& name, const CarryOut& carry_out, std::size_t& carried_out) {
  const std::string stem = stem_of(name);
  const std::string taken = stem + std::string(kTakenEnding);
  if (name != taken) {
    const Status mine = files_.rename(join_path(folder_, name), join_path(folder_, taken));
    if (!mine.has_value()) {  // withdrawn meanwhile?
      return mine.error().code == ErrorCode::kNotFound ? Status() : mine;
    }
  }
  const auto text = read_file(files_, join_path(folder_, taken), kMaxBytes);
  if (!text.has_value()) return reject(taken, text.error().message);
  const auto request = decode_request(*text);
  if (!request.has_value()) return reject(taken, request.error().message);
  EVALCAR_RETURN_IF_ERROR(answer(stem, carry_out(*request)));
  ++carried_out;
  return files_.remove_file(join_path(folder_, taken));
}

/// Kept for people to look at, under a name that is never looked at again.
Status Inbox::reject(const std::string& name, const std::string& why) {
  const std::string stem = stem_of(name);
  const std::string kept = is_plain(stem) ? stem : "x" + sha256_hex(name).substr(0, 16);
  const std::string aside = kept + std::string(kRejectedEnding);
  spdlog::warn("{}: {}; set aside as {}", printable(join_path(folder_, name)), printable(why),
               aside);
  EVALCAR_RETURN_IF_ERROR(remove_tree(files_, join_path(folder_, aside)));
  EVALCAR_RETURN_IF_ERROR(files_.rename(join_path(folder_, name), join_path(folder_, aside)));
  if (!is_plain(stem)) return {};
  return answer(stem, {Outcome::kFailed, "the agent did not understand the request: " + why});
}

Status Inbox::answer(const std::string& stem, const Answer& answer) {
  return write_file_atomically(files_, join_path(folder_, stem + std::string(kAnswerEnding)),
                               encode(answer));
}

/// What killed commands left, and all but the newest of what was set aside.
void Inbox::tidy(const std::vector<DirectoryEntry>& entries) {
  const std::int64_t now_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(clock_.wall_now().time_since_epoch())
          .count();
  const std::int64_t old_ns =
      now_ns - std::chrono::duration_cast<std::chrono::nanoseconds>(kAnswerKept).count();
  std::vector<std::pair<std::int64_t, std::string>> rejected;
  for (const DirectoryEntry& entry : entries) {
    const std::string path = join_path(folder_, entry.name);
    const auto info = files_.info(path);
    if (!info.has_value()) continue;
    if (entry.name.ends_with(kRejectedEnding)) rejected.emplace_back(info->mtime_ns, path);
    const bool leftover =
        entry.name.ends_with(kAnswerEnding) || entry.name.find(".tmp.") != std::string::npos;
    if (leftover && info->mtime_ns < old_ns) (void)remove_tree(files_, path);
  }
  std::sort(rejected.begin(), rejected.end());
  for (std::size_t i = 0; i + kRejectedKept < rejected.size(); ++i) {
    (void)remove_tree(files_, rejected[i].second);
  }
}

}  // namespace evalcar::request
