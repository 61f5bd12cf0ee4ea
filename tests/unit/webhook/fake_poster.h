// A receiver that answers as it is told, and remembers what it was sent.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/webhook/post.h"
#include "store/base/guarded.h"

namespace evalcar::test {

struct Receiver {
  struct Book {
    std::deque<Result<webhook::Answer>> answers;  ///< then 200 for ever
    std::vector<std::string> bodies;
    std::vector<std::vector<std::pair<std::string, std::string>>> headers;
  };
  Guarded<Book> book;
  std::atomic<bool> hangs = false;  ///< answers nothing until it is asked to stop

  std::size_t count() const {
    return book.with([](const Book& b) { return b.bodies.size(); });
  }
  void answer(Result<webhook::Answer> answer) {
    book.with([&](Book& b) { b.answers.push_back(std::move(answer)); });
  }
};

class FakePoster final : public webhook::Poster {
 public:
  explicit FakePoster(Receiver& receiver) : receiver_(receiver) {}
  Result<webhook::Answer> post(const std::string& /*url*/,
                               const std::vector<std::pair<std::string, std::string>>& headers,
                               const std::string& body,
                               const std::function<bool()>& stop) override {
    while (receiver_.hangs) {
      if (stop()) return make_error(ErrorCode::kCancelled, "stopped");
      std::this_thread::yield();
    }
    return receiver_.book.with([&](Receiver::Book& book) -> Result<webhook::Answer> {
      book.bodies.push_back(body);
      book.headers.push_back(headers);
      if (book.answers.empty()) return webhook::Answer{.status = 200};
      auto answer = std::move(book.answers.front());
      book.answers.pop_front();
      return answer;
    });
  }

 private:
  Receiver& receiver_;
};

/// Waits for what another thread does; false after a minute.
template <typename Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 12000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

}  // namespace evalcar::test
