#include "evaluator/engine/encoded_pictures.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

using evalcar::Sha256Digest;
using evalcar::engine::EncodedPictures;

namespace {

constexpr std::uint64_t kBatchBytes = 8 * 4 * sizeof(float);
constexpr std::uint64_t kMuch = std::uint64_t{1} << 40U;

std::uint64_t much_is_free() { return kMuch; }

Sha256Digest batch(int number) {
  evalcar::Sha256 hash;
  hash.update(std::to_string(number));
  return hash.finish();
}

/// (8, 4) float32: kBatchBytes.
at::Tensor features(int number) { return at::full({8, 4}, number + 1, at::kFloat); }

void keep(EncodedPictures& kept, int number) { kept.keep(batch(number), features(number)); }

/// Which of the batches 0, 1, … are here, as "101".
std::string here(EncodedPictures& kept, int count) {
  std::string found;
  for (int i = 0; i < count; ++i) {
    const at::Tensor tensor = kept.find(batch(i));
    if (tensor.defined()) CHECK(at::equal(tensor, features(i)));
    found += tensor.defined() ? '1' : '0';
  }
  return found;
}

}  // namespace

TEST_CASE("what is kept is found again, and is not what its caller may overwrite") {
  EncodedPictures kept(kMuch, &much_is_free);
  kept.begin("tower");
  const at::Tensor made = features(0);

  kept.keep(batch(0), made);
  made.zero_();

  CHECK(here(kept, 2) == "10");
  CHECK(kept.mark(batch(0)));
  CHECK_FALSE(kept.mark(batch(1)));
  CHECK(kept.bytes() == kBatchBytes);
}

TEST_CASE("without a budget, and before weights were loaded, nothing is kept") {
  EncodedPictures none(0, &much_is_free);
  none.begin("tower");
  keep(none, 0);
  EncodedPictures early(kMuch, &much_is_free);
  keep(early, 0);

  CHECK(none.bytes() == 0);
  CHECK(early.bytes() == 0);
}

TEST_CASE("nothing more is kept while memory lacks") {
  EncodedPictures kept(kMuch, &much_is_free);
  kept.begin("tower");
  keep(kept, 0);

  kept.set_keeping(false);
  keep(kept, 1);
  CHECK(here(kept, 2) == "10");

  kept.set_keeping(true);
  keep(kept, 1);
  CHECK(here(kept, 2) == "11");
}

TEST_CASE("a full budget keeps what came first, however often a run asks in a circle") {
  EncodedPictures kept(2 * kBatchBytes + 1, &much_is_free);
  for (int checkpoint = 0; checkpoint < 3; ++checkpoint) {
    kept.begin("tower");
    CHECK(here(kept, 4) == (checkpoint == 0 ? "0000" : "1100"));
    for (int i = 0; i < 4; ++i) keep(kept, i);
    CHECK(kept.bytes() == 2 * kBatchBytes);
  }
}

TEST_CASE("what was not asked for during a whole load of its tower makes room for what is") {
  EncodedPictures kept(2 * kBatchBytes, &much_is_free);
  kept.begin("tower");
  keep(kept, 0);
  keep(kept, 1);
  kept.begin("tower");
  CHECK(kept.mark(batch(1)));
  keep(kept, 2);  // 0 may still be asked for
  CHECK(here(kept, 3).substr(2) == "0");

  EncodedPictures again(2 * kBatchBytes, &much_is_free);
  again.begin("tower");
  keep(again, 0);
  keep(again, 1);
  again.begin("tower");
  CHECK(again.mark(batch(1)));
  again.begin("tower");
  keep(again, 2);
  keep(again, 3);

  CHECK(here(again, 4) == "0110");
}

TEST_CASE("a tower that came again takes the room of those that did not, and they not its own") {
  EncodedPictures kept(2 * kBatchBytes, &much_is_free);
  kept.begin("ema of 1");
  keep(kept, 0);
  keep(kept, 1);
  kept.begin("frozen");
  keep(kept, 2);
  CHECK(here(kept, 3) == "110");  // no one knows yet which is frozen
  kept.begin("ema of 2");
  kept.begin("frozen");
  keep(kept, 2);
  keep(kept, 3);
  CHECK(here(kept, 4) == "0011");
  kept.begin("ema of 3");
  keep(kept, 4);

  CHECK(here(kept, 5) == "00110");
}

TEST_CASE("towers that take turns are all kept") {
  EncodedPictures kept(kMuch, &much_is_free);
  for (int checkpoint = 0; checkpoint < 2; ++checkpoint) {
    for (int tower = 0; tower < static_cast<int>(EncodedPictures::kMostTowers); ++tower) {
      kept.begin("tower " + std::to_string(tower));
      CHECK(kept.mark(batch(tower)) == (checkpoint > 0));
      keep(kept, tower);
    }
  }
}

TEST_CASE("nothing is kept of towers that are trained, until one comes again") {
  EncodedPictures kept(kMuch, &much_is_free);
  const int most = static_cast<int>(EncodedPictures::kMostTowers);
  for (int step = 0; step < most; ++step) {
    kept.begin("step " + std::to_string(step));
    keep(kept, step);
    CHECK(kept.bytes() == static_cast<std::uint64_t>(step + 1) * kBatchBytes);
  }
  for (int step = most; step < most + 3; ++step) {
    kept.begin("step " + std::to_string(step));
    keep(kept, step);
    CHECK(kept.bytes() == 0);
  }
  kept.begin("step " + std::to_string(most + 2));  // frozen from here on
  keep(kept, 7);

  CHECK(kept.mark(batch(7)));
}

TEST_CASE("what is kept is at most a quarter of the memory that it has or could have") {
  std::uint64_t free = 12 * kBatchBytes;
  EncodedPictures kept(kMuch, [&] { return free; });
  kept.begin("tower");
  for (int i = 0; i < 6; ++i) {
    keep(kept, i);
    free = 12 * kBatchBytes - kept.bytes();
  }
  CHECK(here(kept, 6) == "111000");

  free = 5 * kBatchBytes;  // others took the rest: 8 with what is held
  kept.begin("tower");
  CHECK(here(kept, 6) == "011000");
  free = 0;
  kept.begin("tower");
  CHECK(kept.bytes() == 0);
}

TEST_CASE("all of it is given back at once") {
  EncodedPictures kept(kMuch, &much_is_free);
  kept.begin("tower");
  CHECK_FALSE(kept.clear());
  keep(kept, 0);

  CHECK(kept.clear());
  CHECK(kept.bytes() == 0);
  CHECK(here(kept, 1) == "0");
  keep(kept, 0);
  CHECK(here(kept, 1) == "1");
}
