#include "evaluator/engine/width.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::engine;

namespace {

constexpr Width kFull{.sequences = 32, .prefill_tokens = 1024, .patches = 4096};

}  // namespace

TEST_CASE("what did not fit is halved down to one sequence and the least rows") {
  FittingWidth fitting;

  CHECK(fitting.shrink(kFull, 9) == 4);
  CHECK(fitting.of(kFull).sequences == 4);
  CHECK(fitting.of(kFull).prefill_tokens == 512);
  std::int64_t most = 4;
  while (const std::int64_t next = fitting.shrink(kFull, most)) most = next;
  CHECK(most == 1);
  CHECK(fitting.of(kFull).prefill_tokens == 128);
  CHECK(fitting.of(kFull).patches == 1024);
}

TEST_CASE("each run after a full memory is twice as wide until nothing is left off") {
  FittingWidth fitting;
  fitting.shrink(kFull, 16);

  fitting.widen(kFull);
  CHECK(fitting.of(kFull).sequences == 16);
  fitting.widen(kFull);
  CHECK(fitting.of(kFull).sequences == 32);
  CHECK(fitting.shrink(kFull, 32) == 16);
}
