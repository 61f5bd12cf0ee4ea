#include "agent/supervise/evaluator_process.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "store/base/text.h"

namespace evalcar::supervise {
namespace {

constexpr std::size_t kMaxLogLine = 4096;
constexpr std::size_t kEvidenceLines = 12;
constexpr std::size_t kMaxEvidenceLine = 300;
constexpr std::size_t kMaxReadBytes = std::size_t{4} << 20U;  // of one poll: keeps a turn short

/// One line for our log: control bytes of the other side must not reach a terminal.
std::string one_line(std::string_view text, std::size_t limit) {
  return printable(text.substr(0, limit));
}

}  // namespace

EvaluatorProcess::EvaluatorProcess(std::vector<std::string> command)
    : command_(std::move(command)), incoming_(protocol::kMaxLineBytes), log_(kMaxLogLine) {
  command_.insert(command_.end(), {"--fd", "3"});
}

Status EvaluatorProcess::start() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error("socketpair", command_[0], errno);
  }
  OwnedFd ours(::fcntl(ends[0], F_DUPFD_CLOEXEC, 10));
  OwnedFd theirs(::fcntl(ends[1], F_DUPFD_CLOEXEC, 10));
  OwnedFd(ends[0]).reset();
  OwnedFd(ends[1]).reset();
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  child_.reset();
  EVALCAR_ASSIGN_OR_RETURN(child_, ChildProcess::spawn(command_, theirs.get()));
  socket_ = std::move(ours);
  socket_ended_ = output_ended_ = ended_by_us_ = false;
  incoming_.clear();
  log_.clear();
  outgoing_.clear();
  last_lines_.clear();
  return {};
}

void EvaluatorProcess::send(const protocol::Message& message) {
  if (!running()) return;
  outgoing_.append(protocol::encode(message)).push_back('\n');
  flush();
}

void EvaluatorProcess::flush() {
  std::size_t done = 0;
  while (done < outgoing_.size()) {
    const ssize_t n = ::send(socket_.get(), outgoing_.data() + done, outgoing_.size() - done,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) done = outgoing_.size();  // it is gone
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  outgoing_.erase(0, done);
}

void EvaluatorProcess::read_messages(std::vector<EvaluatorEvent>& events) {
  if (socket_ended_) return;
  incoming_.add(read_available(socket_.get(), kMaxReadBytes, socket_ended_));
  while (const auto line = incoming_.next()) {
    auto message = protocol::decode(*line);
    if (message.has_value()) {
      events.push_back(std::move(message).value());
    } else {
      events.push_back(Garbage{message.error().message + ", in \"" + one_line(*line, 120) + "\""});
    }
  }
  if (incoming_.overflowed()) {
    events.push_back(Garbage{"protocol: a line of more than " +
                             std::to_string(protocol::kMaxLineBytes) + " bytes"});
    incoming_.clear();
  }
}

void EvaluatorProcess::read_log() {
  if (output_ended_) return;
  log_.add(read_available(child_->output(), std::size_t{256} << 10U, output_ended_));
  while (const auto line = log_.next()) keep(*line);
  if (log_.overflowed() || (output_ended_ && !log_.rest().empty())) {
    keep(log_.rest());
    log_.clear();
  }
}

void EvaluatorProcess::keep(std::string_view text) {
  std::string line = one_line(text, kMaxLogLine);
  std::int64_t left_out = 0;
  const bool wanted = quota_.take(std::chrono::steady_clock::now(), left_out);
  if (left_out > 0) spdlog::warn("evaluator: {} lines were left out", left_out);
  if (wanted) spdlog::info("evaluator: {}", line);
  last_lines_.push_back(std::move(line));
  if (last_lines_.size() > kEvidenceLines) last_lines_.pop_front();
}

std::string EvaluatorProcess::last_words() const {
  std::string text;
  for (const std::string& line : last_lines_) {
    text.append(text.empty() ? "" : "; ").append(one_line(line, kMaxEvidenceLine));
  }
  return text;
}

std::string EvaluatorProcess::evidence(int wait_status) const {
  const std::string words = last_words();
  return describe_wait_status(wait_status) + (words.empty() ? "" : "; " + words);
}

std::vector<EvaluatorEvent> EvaluatorProcess::poll() {
  std::vector<EvaluatorEvent> events;
  if (!running()) return events;
  flush();
  const std::optional<int> status = child_->try_wait();  // before reading: nothing comes after it
  read_messages(events);
  read_log();
  if (status.has_value()) {
    while (!socket_ended_) {  // what it said before it died still counts
      const std::size_t before = events.size();
      read_messages(events);
      if (events.size() == before) break;
    }
    Exited exited{evidence(*status), {}};
    if (WIFEXITED(*status)) exited.exit_code = WEXITSTATUS(*status);
    if (WIFSIGNALED(*status)) exited.signal = WTERMSIG(*status);
    if (ended_by_us_ && exited.signal == SIGKILL) {
      exited.ended_by_us = true;
      exited.evidence =
          "it closed its channel and went on, so this agent killed it; " + exited.evidence;
    }
    events.push_back(std::move(exited));
    child_.reset();
    socket_.reset();
  } else if (socket_ended_) {
    // It closed the channel and lives on: of no use. What dies closes it on the way, too, and a
    // large process takes its time: that end is its own, or the kernel's.
    ended_by_us_ = ended_by_us_ || !child_->is_exiting();
    child_->kill_group();
  }
  return events;
}

void EvaluatorProcess::kill() {
  if (running()) child_->kill_group();
}

void EvaluatorProcess::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (!running()) return;
  if (!socket_ended_) {
    const int wanted = POLLIN | (outgoing_.empty() ? 0 : POLLOUT);
    descriptors.push_back({socket_.get(), static_cast<short>(wanted), 0});
  }
  if (!output_ended_) descriptors.push_back({child_->output(), POLLIN, 0});
  // What dies closes the others a moment before it can be waited for.
  if (child_->ended() >= 0) descriptors.push_back({child_->ended(), POLLIN, 0});
}

}  // namespace evalcar::supervise
