#include "agent/run/status_file.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "agent/run/warn_once.h"

namespace evalcar::run {
namespace {

using std::chrono::seconds;

constexpr seconds kWritePause{5};
constexpr seconds kAfterNews{1};
constexpr seconds kAtLast{10};  ///< however many news there are
/// All rows are looked at for it. Beside a backlog of thousands, with evaluations of a moment each,
/// it would be most of the work.
constexpr int kTimesItsCost = 20;

}  // namespace

MonotonicTime StatusFile::due(MonotonicTime last_news) const {
  MonotonicTime due = written_at_ + kWritePause;
  if (last_news > written_at_) due = std::min(last_news + kAfterNews, written_at_ + kAtLast);
  return hurried_ ? std::min(due, soonest_) : due;
}

bool StatusFile::is_due(StatusTurn turn, MonotonicTime last_news) {
  if (turn == StatusTurn::kAtOnce) return true;
  hurried_ = hurried_ || turn == StatusTurn::kSoon;
  return clock_.monotonic_now() >= due(last_news);
}

void StatusFile::write(const std::optional<std::string>& folder, std::optional<std::int64_t> run_id,
                       const publish::AgentFacts& facts) {
  written_at_ = clock_.monotonic_now();
  hurried_ = false;
  std::string trouble;
  std::vector<std::string> places = {store_.path() + ".status.json"};
  if (folder.has_value()) {
    const Status made = make_directories(files_, *folder);
    if (made.has_value()) places.insert(places.begin(), join_path(*folder, "status.json"));
    if (!made.has_value()) trouble = made.error().message;
  }
  for (const std::string& path : places) {
    const Status written =
        publish::write_status(files_, store_.read(), clock_, path, run_id, facts, rows_);
    if (!written.has_value()) trouble = written.error().message;
    // `evalcar status` knows the database, but not the configuration that names another folder.
    if (written.has_value() && settings_.dir.empty()) break;
  }
  warn_once(trouble_, trouble);
  const MonotonicTime now = clock_.monotonic_now();
  soonest_ =
      now + std::min<MonotonicTime::duration>(kAfterNews, kTimesItsCost * (now - written_at_));
}

}  // namespace evalcar::run
