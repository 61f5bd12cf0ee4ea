// status.json of one directory: when it is due, and where it is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "agent/publish/status.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/state/store.h"

namespace evalcar::run {

/// When a status is written.
enum class StatusTurn {
  kWhenDue,  ///< every few seconds, soon after a change
  kSoon,     ///< as soon as writing takes a small part of the time: an evaluation began or ended
  kAtOnce,   ///< the last one of this process
};

/// Not thread-safe. All references must outlive it.
class StatusFile {
 public:
  StatusFile(FileSystem& files, const Clock& clock, const state::Store& store,
             const config::PublishSettings& settings)
      : files_(files), clock_(clock), store_(store), settings_(settings) {}

  /// Every few seconds, soon after a change; not at once: the news may be somebody's delete of the
  /// whole directory, and a name of ours that comes and goes meanwhile makes it fail.
  MonotonicTime due(MonotonicTime last_news) const;
  /// Whether it is to be written in this turn.
  bool is_due(StatusTurn turn, MonotonicTime last_news);
  /// There is something to tell that was not told yet.
  bool is_behind(MonotonicTime last_news) const { return hurried_ || last_news > written_at_; }
  /// Writes it into `folder`, if there is one now (nullopt: not before the directory is ours to
  /// write into), and beside the database where nobody would find it there. A failure is told once
  /// and tried again when it is due.
  void write(const std::optional<std::string>& folder, std::optional<std::int64_t> run_id,
             const publish::AgentFacts& facts);

 private:
  FileSystem& files_;
  const Clock& clock_;
  const state::Store& store_;
  const config::PublishSettings& settings_;
  publish::StatusRows rows_;
  std::string trouble_;
  MonotonicTime written_at_{};
  MonotonicTime soonest_{};  ///< for what is to be told soon
  bool hurried_ = false;     ///< there is something of that kind
};

}  // namespace evalcar::run
