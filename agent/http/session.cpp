#include "agent/http/session.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "agent/http/listener_state.h"
#include "agent/http/target.h"

namespace evalcar::http {

Session::~Session() {
  leave_streams();
  state_.sessions.erase(id_);
}

void Session::wait_for_request() {
  since_ = std::chrono::steady_clock::now();
  waiting_ = true;
  parser_.reset();
  if (buffer_.size() > 0) return read_head();
  buffer_.shrink_to_fit();
  stream_.expires_after(state_.limits.idle_time);
  stream_.async_read_some(buffer_.prepare(1024),
                          [self = shared_from_this()](beast::error_code error, std::size_t n) {
                            if (error) return self->close();
                            self->buffer_.commit(n);
                            self->since_ = std::chrono::steady_clock::now();
                            self->read_head();
                          });
}

void Session::close() {
  leave_streams();
  beast::error_code ignored;
  (void)stream_.socket().shutdown(asio::socket_base::shutdown_both, ignored);
  stream_.close();
}

void Session::send(std::shared_ptr<const std::string> event) {
  if (sending_ != nullptr) {
    next_ = std::move(event);
    return;
  }
  sending_ = std::move(event);
  stream_.expires_after(state_.limits.write_time);
  asio::async_write(stream_, asio::buffer(*sending_),
                    [self = shared_from_this()](beast::error_code error, std::size_t) {
                      self->sending_.reset();
                      if (error) return self->close();
                      if (self->next_ != nullptr) self->send(std::exchange(self->next_, nullptr));
                    });
}

void Session::read_head() {
  parser_.emplace();
  parser_->header_limit(state_.limits.head_bytes);
  parser_->body_limit(state_.limits.body_bytes);
  stream_.expires_after(state_.limits.head_time);
  bhttp::async_read_header(stream_, buffer_, *parser_,
                           [self = shared_from_this()](beast::error_code error, std::size_t) {
                             if (error) return self->refuse_unread(error);
                             self->waiting_ = false;
                             self->read_body();
                           });
}

void Session::read_body() {
  request_ = {};
  Head& head = request_.head;
  const auto& message = parser_->get();
  head.method = std::string(message.method_string());
  head.target = std::string(message.target());
  for (const auto& field : message) {
    if (field.name() == bhttp::field::host) head.hosts.emplace_back(field.value());
  }
  head.origin = std::string(message[bhttp::field::origin]);
  head.authorization = std::string(message[bhttp::field::authorization]);
  head.content_type = std::string(message[bhttp::field::content_type]);
  request_.peer = peer_;
  refusal_ = refusal(state_.rules, head, peer_);
  keep_alive_ = message.keep_alive();
  stream_.expires_after(state_.limits.body_time);
  const bool expects = beast::iequals(message[bhttp::field::expect], "100-continue");
  if (expects && !refusal_.has_value()) {
    auto go_on = std::make_shared<bhttp::response<bhttp::empty_body>>(bhttp::status::continue_,
                                                                      message.version());
    return bhttp::async_write(
        stream_, *go_on, [self = shared_from_this(), go_on](beast::error_code error, std::size_t) {
          if (error) return self->close();
          self->read_rest();
        });
  }
  if (expects) return answer(std::move(*refusal_), false);
  read_rest();
}

void Session::read_rest() {
  bhttp::async_read(stream_, buffer_, *parser_,
                    [self = shared_from_this()](beast::error_code error, std::size_t) {
                      if (error) return self->refuse_unread(error);
                      self->handle();
                    });
}

void Session::handle() {
  if (refusal_.has_value()) return answer(std::move(*refusal_), keep_alive_);
  auto target = parse_target(request_.head.target);
  if (!target.has_value()) return answer(error_response(400, target.error().message), false);
  request_.path = std::move(target->path);
  request_.query = std::move(target->query);
  request_.body = std::move(parser_->get().body());
  stream_.expires_never();  // the handler's own time
  state_.unanswered[id_] = shared_from_this();
  state_.handler(request_, [state = state_.weak_from_this(), id = id_](Response response) {
    const auto alive = state.lock();
    if (alive == nullptr) return;
    asio::post(alive->io, [state, id, response = std::move(response)]() mutable {
      const auto there = state.lock();
      if (there == nullptr) return;
      const auto found = there->unanswered.find(id);
      if (found == there->unanswered.end()) return;
      const auto self = std::move(found->second);
      there->unanswered.erase(found);
      self->answer(std::move(response), self->keep_alive_);
    });
  });
}

void Session::refuse_unread(beast::error_code error) {
  if (error == bhttp::error::header_limit) {
    return answer(error_response(431, "the head is too large"), false);
  }
  if (error == bhttp::error::body_limit) {
    return answer(error_response(413, "the body is too large"), false);
  }
  const bool is_http =
      error.category() == bhttp::make_error_code(bhttp::error::bad_method).category();
  const bool ended = error == bhttp::error::end_of_stream || error == bhttp::error::partial_message;
  if (!is_http || ended) return close();  // gone, or too slow
  answer(error_response(400, "not an HTTP request: " + error.message()), false);
}

void Session::stream(const Response& response) {
  if (state_.streams.size() >= state_.limits.streams) {
    Response full = error_response(503, "enough pages are being told already");
    full.fields.emplace_back("Retry-After", "60");
    return answer(std::move(full), keep_alive_);
  }
  topic_ = response.topic;
  state_.streams[id_] = weak_from_this();
  state_.topics.with([this](auto& topics) { topics[id_] = topic_; });
  stream_.expires_never();  // for reading; each event has its own time
  watch_peer();
  send(std::make_shared<const std::string>(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" +
      response.body));
}

void Session::watch_peer() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(512),
                          [self = shared_from_this()](beast::error_code error, std::size_t n) {
                            self->drained_ += n;
                            if (error || self->drained_ > self->state_.limits.body_bytes)
                              return self->close();
                            self->watch_peer();
                          });
}

void Session::leave_streams() {
  if (topic_.empty()) return;
  state_.streams.erase(id_);
  state_.topics.with([this](auto& topics) { topics.erase(id_); });
}

void Session::answer(Response response, bool keep_alive) {
  waiting_ = false;
  if (!response.topic.empty()) return stream(response);
  auto message = std::make_shared<bhttp::response<bhttp::string_body>>();
  message->result(response.status);
  message->version(11);
  message->set(bhttp::field::content_type, response.content_type);
  message->set("X-Content-Type-Options", "nosniff");
  message->set(bhttp::field::cache_control, "no-store");
  for (const auto& [name, value] : response.fields) message->set(name, value);
  const bool head_only = request_.head.method == "HEAD";
  const std::size_t size = response.body.size();
  if (!head_only) message->body() = std::move(response.body);
  message->keep_alive(keep_alive);
  message->content_length(size);
  stream_.expires_after(state_.limits.write_time);
  bhttp::async_write(
      stream_, *message,
      [self = shared_from_this(), message, keep_alive](beast::error_code error, std::size_t) {
        if (error || !keep_alive) return self->end(error);
        self->wait_for_request();
      });
}

void Session::end(beast::error_code error) {
  if (error) return close();
  beast::error_code ignored;
  (void)stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  waiting_ = true;
  drained_ = 0;
  stream_.expires_after(std::chrono::seconds(1));
  drain();
}

void Session::drain() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(4096),
                          [self = shared_from_this()](beast::error_code error, std::size_t n) {
                            self->drained_ += n;
                            const bool enough = self->drained_ > 4 * self->state_.limits.body_bytes;
                            if (error || enough) return self->close();
                            self->drain();
                          });
}

}  // namespace evalcar::http
