#include "agent/http/merges.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/http/fields.h"
#include "agent/supervise/child_process.h"
#include "store/base/text.h"
#include "store/checkpoint/output_place.h"

namespace evalcar::http {
namespace {

using OrderedJson = nlohmann::ordered_json;
using supervise::OwnedFd;

constexpr std::size_t kMostWaiting = 4;
constexpr std::size_t kMostAnswer = std::size_t{64} * 1024;
constexpr std::size_t kMostOutput = std::size_t{4} * 1024;  ///< its last words

unsigned status_of(const Error& error) {
  if (error.code == ErrorCode::kUnsupported) return 403;
  if (error.code == ErrorCode::kNotFound) return 404;
  return error.code == ErrorCode::kUnavailable ? 503 : 422;
}

Response failed(const std::string& why) { return error_response(500, "Merge failed: " + why); }

/// Both streams of the child, until it has ended. False: we are to stop.
bool listen_to(supervise::ChildProcess& child, int channel, int stop_event, std::string& answer,
               std::string& output) {
  bool channel_open = true;
  bool output_open = true;
  while (channel_open || output_open) {
    std::array<pollfd, 3> fds = {{{channel_open ? channel : -1, POLLIN, 0},
                                  {output_open ? child.output() : -1, POLLIN, 0},
                                  {stop_event, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return false;
    if (fds[2].revents != 0) return false;
    if (fds[0].revents != 0) {
      std::array<char, 4096> piece{};
      const ssize_t n = ::read(channel, piece.data(), piece.size());
      channel_open = n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
      if (n > 0 && answer.size() < kMostAnswer) {
        answer.append(piece.data(), static_cast<std::size_t>(n));
      }
    }
    if (fds[1].revents != 0) {
      bool ended = false;
      output += supervise::read_available(child.output(), 1U << 16U, ended);
      if (output.size() > kMostOutput) output.erase(0, output.size() - kMostOutput);
      output_open = !ended;
    }
  }
  return true;
}

}  // namespace

std::variant<MergePlan, Response> read_merge_request(const Places& places,
                                                     const OrderedJson& body) {
  Fields fields(body);
  MergePlan plan;
  const std::string checkpoint = fields.text("checkpoint_path");
  const auto output = fields.optional_text("output_path");
  plan.kind = fields.optional_text("checkpoint_type").value_or("regular");
  if (fields.good() && plan.kind != "regular" && plan.kind != "ema") {
    fields.refuse("checkpoint_type", "Input should be 'regular' or 'ema'");
  }
  if (!fields.good()) return fields.response();
  const auto folder = places.folder(checkpoint);
  if (!folder.has_value()) {
    return error_response(status_of(folder.error()), folder.error().message);
  }
  plan.checkpoint = *folder;
  if (!output.has_value() || output->empty()) return plan;
  const auto place = places.output(*output);
  if (!place.has_value()) return error_response(status_of(place.error()), place.error().message);
  Status allowed = places.check_not_ours(*place);
  if (allowed.has_value()) {
    allowed =
        checkpoint::check_output_place(places.files(), *place, checkpoint::OutputUse::kReplaced);
  }
  if (!allowed.has_value()) return error_response(403, allowed.error().message);
  plan.output_dir = *place;
  return plan;
}

Merges::Merges(std::vector<std::string> command)
    : command_(std::move(command)),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { work(); }) {}

Merges::~Merges() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  const std::uint64_t one = 1;
  (void)!::write(stop_event_, &one, sizeof one);
  changed_.notify_all();
  thread_.join();
  ::close(stop_event_);
}

void Merges::begin(MergePlan plan, Respond respond) {
  const std::scoped_lock lock(mutex_);
  if (waiting_.size() >= kMostWaiting) {
    return respond(error_response(429, "too many merges wait already"));
  }
  waiting_.emplace_back(std::move(plan), std::move(respond));
  changed_.notify_all();
}

void Merges::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const auto [plan, respond] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    spdlog::info("merging {} {} for a request", printable(plan.checkpoint), plan.kind);
    Response response = run(plan);
    spdlog::info("merging {} {}: {}", printable(plan.checkpoint), plan.kind,
                 response.status == 200 ? "done" : printable(response.body.substr(0, 500)));
    respond(std::move(response));
  }
}

Response Merges::run(const MergePlan& plan) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return failed(errno_error("socketpair", "merge", errno).message);
  }
  const OwnedFd ours(ends[0]);
  OwnedFd theirs(ends[1]);
  const std::string line =
      OrderedJson{
          {"checkpoint", plan.checkpoint}, {"output_dir", plan.output_dir}, {"kind", plan.kind}}
          .dump(-1, ' ', false, OrderedJson::error_handler_t::replace) +
      "\n";
  // A few kilobytes at most: the socket's buffer takes them at once.
  if (::send(ours.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return failed("the child cannot be told");
  }
  auto child = supervise::ChildProcess::spawn(command_, theirs.get());
  if (!child.has_value()) return failed(child.error().message);
  theirs.reset();
  std::string answer;
  std::string output;
  if (!listen_to(*child, ours.get(), stop_event_, answer, output)) {
    return error_response(503, "the server stops");
  }
  const OrderedJson result = OrderedJson::parse(answer, nullptr, false);
  if (result.is_object() && result.contains("merged_path") && result["merged_path"].is_string()) {
    Response response;
    response.body = OrderedJson{{"success", true},
                                {"message", "Checkpoint merged successfully"},
                                {"merged_path", result["merged_path"]}}
                        .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    return response;
  }
  const OrderedJson error =
      result.is_object() ? result.value("error", OrderedJson()) : OrderedJson();
  if (!error.is_string()) return failed("the child ended without an answer: " + printable(output));
  const bool usage = result.value("exit_code", OrderedJson()) != 1;
  if (usage) return error_response(400, error.get<std::string>());
  return failed(error.get<std::string>());
}

}  // namespace evalcar::http
