#include "evaluator/engine/outstanding.h"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

using namespace evalcar;
using namespace evalcar::engine;

namespace {

std::vector<Request> requests_of(const std::vector<bool>& answered_before) {
  std::vector<Request> requests(answered_before.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].answered_before = answered_before[i];
  return requests;
}

/// Notes what it was told.
struct Listener {
  std::vector<std::size_t> told;
  std::set<std::size_t> unwanted;
  RunEvents events{.answered = [this](std::size_t i, const auto&) { told.push_back(i); },
                   .wanted = [this](std::size_t i) { return !unwanted.contains(i); }};
};

const Pack kFirst{.groups = {{0, {0, 1}}, {0, {2}}}};
const Pack kSecond{.groups = {{0, {3}}}};

}  // namespace

TEST_CASE("a pack is computed while one of its answers is awaited") {
  Listener listener;
  const auto requests = requests_of({true, false, true, true});
  Outstanding outstanding(requests, listener.events);

  CHECK(outstanding.any());
  CHECK(outstanding.any_of(kFirst));
  CHECK_FALSE(outstanding.any_of(kSecond));

  outstanding.answer(1, Answer{});

  CHECK_FALSE(outstanding.any());
  CHECK_FALSE(outstanding.any_of(kFirst));
}

TEST_CASE("what is computed again is what is known of packs that are computed") {
  Listener listener;
  const auto requests = requests_of({true, false, true, true});
  Outstanding outstanding(requests, listener.events);
  const std::vector<Pack> packs{kFirst, kSecond};

  CHECK(outstanding.computed_again(packs) == 2);

  outstanding.answer(1, Answer{});

  CHECK(outstanding.computed_again(packs) == 0);
}

TEST_CASE("what an earlier attempt answered is not told again, not even as an error") {
  Listener listener;
  const auto requests = requests_of({true, false, true, false});
  Outstanding outstanding(requests, listener.events);

  outstanding.answer(0, Answer{});
  outstanding.answer(1, make_error(ErrorCode::kCorruption, "torn"));
  outstanding.answer(2, make_error(ErrorCode::kCorruption, "torn"));
  outstanding.answer(3, Answer{});

  CHECK(listener.told == std::vector<std::size_t>{1, 3});
}

TEST_CASE("what is computed once more, as company, is told once") {
  Listener listener;
  const auto requests = requests_of({false, false});
  Outstanding outstanding(requests, listener.events);

  outstanding.answer(1, Answer{});
  outstanding.answer(0, Answer{});
  outstanding.answer(1, make_error(ErrorCode::kCorruption, "torn"));

  CHECK(listener.told == std::vector<std::size_t>{1, 0});
}

TEST_CASE("what is no longer wanted is awaited by nobody") {
  Listener listener;
  const auto requests = requests_of({true, false, true, false});
  Outstanding outstanding(requests, listener.events);

  listener.unwanted = {0, 1};

  CHECK_FALSE(outstanding.any_of(kFirst));
  CHECK(outstanding.any_of(kSecond));
  CHECK(outstanding.any());
  CHECK_FALSE(outstanding.is_left(0));
  CHECK(outstanding.is_left(2));
}

TEST_CASE("a new plan is made of what was neither computed nor passed over, answered or not") {
  Listener listener;
  const auto requests = requests_of({true, true, true, true, false, true});
  Outstanding outstanding(requests, listener.events);

  outstanding.pass_over(kFirst);
  outstanding.answer(3, Answer{});

  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (outstanding.is_left(i)) left.push_back(i);
  }
  CHECK(left == std::vector<std::size_t>{4, 5});
}
