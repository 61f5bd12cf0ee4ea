#include "agent/run/job_list.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace evalcar::run {
namespace {

using request::JobNews;
using request::JobPlan;

constexpr std::chrono::seconds kListPause{1};
/// The watcher looks at the folder of a new job.
constexpr std::chrono::milliseconds kLookPause{100};
/// A long queue is looked at from its head on; all of it more seldom.
constexpr std::chrono::seconds kPauseOfAll{5};
constexpr std::size_t kHead = 32;
/// A folder that the watcher does not take for a checkpoint in all that time is none.
constexpr std::chrono::seconds kUnseenPatience{120};
constexpr const char* kNoCheckpoint =
    "its folder is no checkpoint by watch.pattern, or is never complete";
constexpr const char* kNotAsked = "its output directory does not answer, or is not there";
constexpr const char* kOfEarlierLife = "its output directory was made anew, without its checkpoint";

}  // namespace

std::optional<MonotonicTime> JobList::due() const {
  if (followed_.empty() && looked_) return std::nullopt;
  return due_;
}

Status JobList::step(const Directories& directories, const std::string& task) {
  task_ = task;
  const MonotonicTime now = around_.clock.monotonic_now();
  const bool told = desk_.calm();
  if (!told && looked_ && (followed_.empty() || now < due_)) return {};
  looked_ = true;
  due_ = now + kListPause;
  const bool all = now >= all_due_;
  if (all) all_due_ = now + kPauseOfAll;
  const auto open = desk_.open_jobs();
  wanted_.clear();
  given_up_.clear();
  Status first;
  std::set<std::string> ids;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const std::string& id = open[i].plan.id;
    ids.insert(id);
    const auto known = followed_.find(id);
    const bool is_new = known == followed_.end() || !known->second.asked;
    if (!all && i >= kHead && !is_new && !open[i].cancelled) continue;
    Status looked = look(open[i], directories);
    if (first.has_value()) first = std::move(looked);  // one that cannot be asked stops no other
    if (is_new && now - followed_.at(id).since < kListPause) due_ = now + kLookPause;
  }
  std::erase_if(followed_, [&](const auto& entry) { return !ids.contains(entry.first); });
  for (const auto& [id, followed] : followed_) {
    if (followed.own_row.has_value()) wanted_[followed.directory].insert(*followed.own_row);
  }
  for (const auto& directory : directories) {
    std::set<std::int64_t>& given_up = given_up_[directory.get()];
    for (const std::int64_t wanted : wanted_[directory.get()]) given_up.erase(wanted);
    const Status kept = directory->keep_requested(wanted_[directory.get()], given_up);
    if (first.has_value() && !kept.has_value()) first = kept;
  }
  return first;
}

/// Null: it cannot be asked now, or which one it is cannot be told.
Result<OutputDirectory*> JobList::directory_of(const JobPlan& plan, const Followed& followed,
                                               const Directories& directories) {
  const std::string parent = parent_path(plan.checkpoint);
  for (const auto& directory : directories) {
    const auto real = around_.files.real_path(directory->path());
    if (real.has_value() && *real == parent) return directory.get();
    if (!real.has_value() && directory.get() == followed.directory) return nullptr;
  }
  return open_(parent);
}

Status JobList::look(const request::JobDesk::OpenJob& job, const Directories& directories) {
  const JobPlan& plan = job.plan;
  const MonotonicTime now = around_.clock.monotonic_now();
  auto& followed = followed_.try_emplace(plan.id, Followed{.since = now}).first->second;
  const auto unseen_at = std::exchange(followed.unseen_at, std::nullopt);
  const auto fail = [&](std::string why) -> Status {
    tell({.id = plan.id, .status = "failed", .reason = std::move(why)}, followed);
    return {};
  };
  const auto cancel = [&]() -> Status {
    if (followed.own_row.has_value()) given_up_[followed.directory].insert(*followed.own_row);
    followed.own_row.reset();
    tell({.id = plan.id, .status = "cancelled"}, followed);
    return {};
  };
  auto directory = directory_of(plan, followed, directories);
  if (directory.has_value() && *directory != nullptr && (*directory)->fatal()) {
    directory = make_error(ErrorCode::kUnavailable, (*directory)->fatal_reason());
  }
  if (!directory.has_value()) return job.cancelled ? cancel() : fail(directory.error().message);
  if (*directory == nullptr) {
    if (job.cancelled) return cancel();
    tell({.id = plan.id, .status = "queued", .reason = kNotAsked}, followed);
    return {};
  }
  // Each time: a checkpoint that was written again has another one.
  EVALCAR_ASSIGN_OR_RETURN(const auto own, (*directory)->requested_row(plan));
  followed.own_row = own.has_value() ? std::optional(own->id) : std::nullopt;
  followed.directory = *directory;
  if (job.cancelled) return cancel();
  auto news = (*directory)->look_at_job(plan, {.first = !followed.asked, .since = followed.since});
  if (!news.has_value()) return news.error();
  if (!news->has_value()) {
    wait_unseen(plan, followed, unseen_at);
    return {};
  }
  if (!(*news)->undecided) {
    followed.asked = true;
    followed.unseen = {};
  }
  if ((*news)->ended()) followed.own_row.reset();
  tell(std::move(**news), followed);
  return {};
}

/// Its directory can be asked, and knows no such checkpoint. `since`: the last look said so, too.
void JobList::wait_unseen(const JobPlan& plan, Followed& followed,
                          std::optional<MonotonicTime> since) {
  const MonotonicTime now = around_.clock.monotonic_now();
  followed.unseen += now - since.value_or(now);
  followed.unseen_at = now;
  JobNews news{.id = plan.id, .status = "queued", .reason = "its checkpoint was not seen yet"};
  if (followed.unseen > kUnseenPatience) {
    news.status = "failed";
    news.reason = followed.asked ? kOfEarlierLife : kNoCheckpoint;
  }
  tell(std::move(news), followed);
}

void JobList::estimate(JobNews& news, Followed& followed) const {
  if (news.stage != "evaluating" || news.total <= 0) return followed.counting_since.reset();
  const MonotonicTime now = around_.clock.monotonic_now();
  if (!followed.counting_since.has_value()) {
    followed.counting_since = now;
    followed.first_done = news.done;
  }
  const std::int64_t counted = news.done - followed.first_done;
  if (counted <= 0) return;
  const double seconds = std::chrono::duration<double>(now - *followed.counting_since).count();
  news.eta_s = seconds / static_cast<double>(counted) * static_cast<double>(news.total - news.done);
}

void JobList::tell(JobNews news, Followed& followed) {
  estimate(news, followed);
  // One evaluation runs at a time.
  if (news.stage == "evaluating") news.task = task_;
  const std::string told = news.status + "\n" + news.reason + "\n" + news.stage + news.task + "\n" +
                           std::to_string(news.done) + "/" + std::to_string(news.total);
  if (told == followed.told) return;
  followed.told = told;
  desk_.tell(std::move(news));
}

bool JobList::needs(const OutputDirectory& directory) const {
  return std::ranges::any_of(
      followed_, [&](const auto& entry) { return entry.second.directory == &directory; });
}

void JobList::forget(const OutputDirectory& directory) {
  wanted_.erase(&directory);
  given_up_.erase(&directory);
}

bool JobList::is_cancelled(const OutputDirectory& directory, std::int64_t evaluation) const {
  const auto found = given_up_.find(&directory);
  return found != given_up_.end() && found->second.contains(evaluation);
}

}  // namespace evalcar::run
