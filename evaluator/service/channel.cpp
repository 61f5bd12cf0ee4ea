#include "evaluator/service/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace evalcar::service {

Channel::Channel(int fd, std::function<void(const protocol::Message&)> on_urgent)
    : fd_(fd), on_urgent_(std::move(on_urgent)), reader_([this] { read_loop(); }) {}

Channel::~Channel() {
  ::shutdown(fd_, SHUT_RDWR);  // wakes the reader
  reader_.join();
  ::close(fd_);
}

protocol::Message Channel::receive() {
  std::unique_lock lock(queue_mutex_);
  arrived_.wait(lock, [this] { return !queue_.empty(); });
  protocol::Message message = std::move(queue_.front());
  // The end stays in the queue: everybody who asks again gets it again.
  if (!std::holds_alternative<protocol::Bye>(message)) queue_.pop_front();
  return message;
}

void Channel::send(const protocol::Message& message) {
  const std::string line = protocol::encode(message) + "\n";
  const std::scoped_lock lock(send_mutex_);
  std::string_view rest = line;
  while (!rest.empty() && !broken_) {
    const ssize_t n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      broken_ = true;
    }
  }
}

void Channel::enqueue(protocol::Message message) {
  if (std::holds_alternative<protocol::Prefetch>(message)) return on_urgent_(message);
  const bool urgent = std::holds_alternative<protocol::Cancel>(message) ||
                      std::holds_alternative<protocol::Bye>(message);
  if (urgent) on_urgent_(message);
  const std::scoped_lock lock(queue_mutex_);
  queue_.push_back(std::move(message));
  arrived_.notify_one();
}

bool Channel::take_line(std::string_view line) {
  if (line.empty()) return true;
  Result<protocol::Message> message = protocol::decode(line);
  if (!message.has_value()) {
    send(protocol::JobError{.id = "",
                            .kind = std::string(error_code_name(message.error().code)),
                            .stage = "protocol",
                            .message = message.error().message,
                            .retryable = false,
                            .fatal = true});
    return false;
  }
  const bool end = std::holds_alternative<protocol::Bye>(*message);
  enqueue(std::move(*message));
  return !end;
}

void Channel::read_loop() {
  std::string pending;
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    pending.append(buffer.data(), static_cast<std::size_t>(n));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = pending.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      if (!take_line(std::string_view(pending).substr(begin, end - begin)))
        return enqueue(protocol::Bye{});
    }
    pending.erase(0, begin);
    if (pending.size() > protocol::kMaxLineBytes) break;
  }
  enqueue(protocol::Bye{});
}

}  // namespace evalcar::service
