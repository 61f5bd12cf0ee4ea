#include "evaluator/engine/draft.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace {

using namespace evalcar::engine;

using Tokens = std::vector<std::int32_t>;

Tokens guesses(const Draft& draft, std::int64_t most = 100) {
  const auto next = draft.next(most);
  return {next.begin(), next.end()};
}

void take(Draft& draft, const Tokens& tokens) {
  for (const std::int32_t token : tokens) draft.take(token);
}

}  // namespace

TEST_CASE("nothing is expected without an earlier answer") {
  Draft draft;
  draft.take(5);

  CHECK(guesses(draft).empty());
}

TEST_CASE(
    "while the answer is as the earlier one, what follows there is expected, as much as asked") {
  const Tokens earlier = {5, 6, 7, 8};
  Draft draft(earlier);
  CHECK(guesses(draft, 2) == Tokens{5, 6});

  take(draft, {5, 6});

  CHECK(guesses(draft) == Tokens{7, 8});
  CHECK(guesses(draft, 0).empty());
  CHECK(guesses(draft, -1).empty());
}

TEST_CASE("behind the end of the earlier answer nothing is expected") {
  const Tokens earlier = {5, 6};
  Draft draft(earlier);

  take(draft, {5, 6});
  CHECK(guesses(draft).empty());
  take(draft, {7, 8});
  CHECK(guesses(draft).empty());
}

TEST_CASE("once another token came nothing is expected, until two stand further on as they came") {
  const Tokens earlier = {1, 2, 3, 4, 5, 6, 7};
  struct Departure {
    const char* what;
    Tokens tokens;
    Tokens expected;
  };
  const std::vector<Departure> departures = {
      {"another word", {1, 2, 9}, {}},
      {"another word in place of one", {1, 2, 9, 4}, {}},
      {"another word in place of one", {1, 2, 9, 4, 5}, {6, 7}},
      {"a word more", {1, 2, 9, 3, 4}, {5, 6, 7}},
      {"a word less", {1, 2, 4, 5}, {6, 7}},
      {"another beginning", {9, 1, 2}, {3, 4, 5, 6, 7}},
      {"two that stand apart", {1, 9, 3, 5}, {}},
      {"two that stood before they parted", {1, 2, 3, 1, 2}, {}},
      {"the last two", {1, 9, 6, 7}, {}},
  };
  for (const Departure& departure : departures) {
    INFO(departure.what);
    Draft draft(earlier);
    take(draft, departure.tokens);
    CHECK(guesses(draft) == departure.expected);
  }
}

TEST_CASE("of an earlier answer that is very long only the beginning is looked at") {
  const Tokens earlier(kMostDraftTokens + 5, 3);
  const Draft draft(earlier);

  CHECK(guesses(draft, 1 << 20).size() == kMostDraftTokens);
}

TEST_CASE("guesses fill what a pass has room for beside the sequences' own rows, evenly") {
  CHECK(guesses_of_each(1, 1, 32) == kMostGuesses);
  CHECK(guesses_of_each(4, 4, 32) == 7);
  CHECK(guesses_of_each(8, 8, 32) == 3);
  CHECK(guesses_of_each(8, 4, 32) == 6);
  CHECK(guesses_of_each(8, 1, 9) == 1);
  CHECK(guesses_of_each(8, 1, 8) == 0);
  CHECK(guesses_of_each(kMostDecoded + 1, 1, 32) == 0);
  CHECK(guesses_of_each(4, 0, 32) == 0);
  CHECK(guesses_of_each(4, 4, 0) == 0);
}
