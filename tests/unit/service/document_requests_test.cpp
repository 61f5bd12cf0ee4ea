#include "evaluator/service/document_requests.h"

#include <catch2/catch_test_macros.hpp>
#include <numeric>

using namespace evalcar;
using evalcar::service::rolling_windows;

namespace {

std::vector<std::int32_t> count_to(std::int32_t most) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(most));
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

// The tokens that a window scores.
std::vector<std::int32_t> scored(const engine::Request& window) {
  const engine::TokenSpan span = window.scoring->spans.front();
  return {window.tokens.begin() + span.begin, window.tokens.begin() + span.end};
}

}  // namespace

TEST_CASE("a text that fits is one window behind the prefix") {
  const auto windows = rolling_windows(count_to(4), 99, 4);

  REQUIRE(windows.size() == 1);
  CHECK(windows[0].tokens == std::vector<std::int32_t>{99, 1, 2, 3, 4});
  CHECK(scored(windows[0]) == count_to(4));
}

TEST_CASE("windows score each token once, and the last one fills up with what came before") {
  // lm-eval's get_rolling_token_windows(range(1, 11), 99, max_seq_len=4, context_len=1).
  const auto windows = rolling_windows(count_to(10), 99, 4);

  REQUIRE(windows.size() == 3);
  CHECK(windows[1].tokens == std::vector<std::int32_t>{4, 5, 6, 7, 8});
  CHECK(scored(windows[1]) == std::vector<std::int32_t>{5, 6, 7, 8});
  CHECK(windows[2].tokens == std::vector<std::int32_t>{6, 7, 8, 9, 10});
  CHECK(scored(windows[2]) == std::vector<std::int32_t>{9, 10});
  CHECK(rolling_windows({}, 99, 4).empty());
}
