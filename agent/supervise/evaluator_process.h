// The real evaluator: the program evalcar-evaluator as a child, on a socketpair.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/supervise/child_process.h"
#include "agent/supervise/evaluator.h"
#include "agent/supervise/line_buffer.h"
#include "agent/supervise/line_quota.h"

namespace evalcar::supervise {

/// What it writes to standard output and error goes to our log, line by line and so much of it a
/// minute; the last lines are kept as evidence for when it dies.
class EvaluatorProcess final : public Evaluator {
 public:
  /// `command`: program and arguments; "--fd 3" is appended.
  explicit EvaluatorProcess(std::vector<std::string> command);
  ~EvaluatorProcess() override = default;

  Status start() override;
  bool running() const override { return child_.has_value(); }
  std::int64_t pid() const override { return child_.has_value() ? child_->pid() : 0; }
  void send(const protocol::Message& message) override;
  std::vector<EvaluatorEvent> poll() override;
  std::string last_words() const override;
  void kill() override;
  void add_descriptors(std::vector<pollfd>& descriptors) const override;

 private:
  void flush();
  void read_messages(std::vector<EvaluatorEvent>& events);
  void read_log();
  void keep(std::string_view text);
  std::string evidence(int wait_status) const;

  std::vector<std::string> command_;
  std::optional<ChildProcess> child_;
  OwnedFd socket_;
  bool socket_ended_ = false;
  bool output_ended_ = false;
  bool ended_by_us_ = false;  ///< without kill(): its channel had ended
  LineBuffer incoming_;
  LineBuffer log_;
  LineQuota quota_;
  std::string outgoing_;
  std::deque<std::string> last_lines_;
};

}  // namespace evalcar::supervise
