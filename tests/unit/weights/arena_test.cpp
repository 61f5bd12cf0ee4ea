#include "evaluator/weights/arena.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <catch2/catch_test_macros.hpp>
#include <vector>

using namespace evalcar::weights;

namespace {

constexpr std::uint64_t kPlenty = 1 << 20;

struct Scene {
  Scene() {
    layout.add("norm", {4});
    layout.add("a", {8, 4});
    layout.add("b", {2, 4});
    layout.mark("a", Rows::kFew);
    layout.mark("b", Rows::kFew);
  }

  WeightLayout layout;
};

}  // namespace

TEST_CASE("matrices for few rows get a bfloat16 copy where their values are bfloat16 numbers") {
  const Scene scene;
  Arena arena(scene.layout, at::kFloat, at::kCPU);
  arena.tensor("a").fill_(1.5);
  CHECK_FALSE(arena.half("a").defined());

  arena.make_halves({true, true, false}, false, kPlenty);

  CHECK(at::equal(arena.half("a"), arena.tensor("a").to(at::kBFloat16)));
  CHECK_FALSE(arena.half("b").defined());     // not exact
  CHECK_FALSE(arena.half("norm").defined());  // not marked
}

TEST_CASE("matrices for many rows get a copy only where that is of use") {
  Scene scene;
  scene.layout.mark("b", Rows::kMany);
  Arena arena(scene.layout, at::kFloat, at::kCPU);
  arena.tensor("a").fill_(1.5);
  arena.tensor("b").fill_(-2);

  arena.make_halves({true, true, true}, /*of_many=*/false, kPlenty);
  CHECK(arena.half("a").defined());
  CHECK_FALSE(arena.half("b").defined());

  arena.make_halves({true, true, true}, /*of_many=*/true, kPlenty);
  CHECK(at::equal(arena.half("a"), arena.tensor("a").to(at::kBFloat16)));
  CHECK(at::equal(arena.half("b"), arena.tensor("b").to(at::kBFloat16)));
}

TEST_CASE("what matrices for many rows would take costs those for few rows no copy") {
  Scene scene;
  scene.layout.mark("b", Rows::kMany);
  Arena arena(scene.layout, at::kFloat, at::kCPU);
  arena.tensor("a").fill_(1.5);
  arena.tensor("b").fill_(-2);

  arena.make_halves({true, true, true}, /*of_many=*/true, 256);  // room for one of the two

  CHECK(at::equal(arena.half("a"), arena.tensor("a").to(at::kBFloat16)));
  CHECK_FALSE(arena.half("b").defined());
  arena.make_halves({true, true, true}, /*of_many=*/true, 255);
  CHECK_FALSE(arena.half("a").defined());
}

TEST_CASE("the copies follow what is loaded next") {
  const Scene scene;
  Arena arena(scene.layout, at::kFloat, at::kCPU);
  arena.tensor("a").fill_(1.5);
  arena.tensor("b").fill_(2);
  arena.make_halves({true, true, true}, false, kPlenty);

  arena.tensor("a").fill_(-3);
  arena.tensor("b").fill_(0.1);
  arena.make_halves({true, true, false}, false, kPlenty);

  CHECK(at::equal(arena.half("a"), arena.tensor("a").to(at::kBFloat16)));
  CHECK_FALSE(arena.half("b").defined());
}

TEST_CASE("no copies are made beyond the bytes allowed, nor of a bfloat16 arena") {
  const Scene scene;
  Arena arena(scene.layout, at::kFloat, at::kCPU);
  arena.tensor("a").fill_(1);
  arena.tensor("b").fill_(1);
  const std::uint64_t bytes = 256 + 256;  // each starts at a multiple of that
  arena.make_halves({true, true, true}, false, bytes);
  CHECK(arena.half("b").defined());
  arena.make_halves({true, true, true}, false, bytes - 1);
  CHECK_FALSE(arena.half("a").defined());
  CHECK_FALSE(arena.half("b").defined());

  Arena narrow(scene.layout, at::kBFloat16, at::kCPU);
  narrow.make_halves({true, true, true}, false, kPlenty);
  CHECK_FALSE(narrow.half("a").defined());
}
