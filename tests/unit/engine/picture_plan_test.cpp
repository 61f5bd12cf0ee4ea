#include "evaluator/engine/picture_plan.h"

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

using namespace evalcar;
using namespace evalcar::engine;

namespace {

Sha256Digest digest_of(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

/// Pictures of four patches; those whose indices differ by a hundred are equal. Nothing is loaded.
class Squares final : public ImageSource {
 public:
  std::size_t size() const override { return 300; }
  std::uint64_t key_of(std::size_t index) const override { return index % 100; }
  std::optional<Sha256Digest> content_of(std::size_t index) const override {
    if (index == unknown) return std::nullopt;
    return digest_of(std::to_string(index % 100));
  }
  vision::PreparedSize size_of(std::size_t) const override { return {1, 2, 2}; }
  Result<vision::PreparedImage> load(std::size_t) const override {
    return make_error(ErrorCode::kInternal, "not to be loaded");
  }

  std::size_t unknown = ~std::size_t{0};
};

const Sha256Digest kEncoder = digest_of("encoder");

bool nothing(const Sha256Digest&) { return false; }
bool everything(const Sha256Digest&) { return true; }
bool all_packs(std::size_t) { return true; }

/// Pack n shows pictures[n], one a request.
struct Scene {
  explicit Scene(const std::vector<std::vector<std::size_t>>& pictures,
                 std::int64_t most_patches = 8) {
    for (const auto& shown : pictures) {
      Pack& pack = packs.emplace_back();
      for (const std::size_t picture : shown) {
        pack.groups.push_back({.shared = 0, .requests = {requests.size()}});
        requests.emplace_back().images = {picture};
      }
    }
    plan.emplace(packs, requests, images, most_patches);
  }

  /// What is made where only these packs are computed.
  std::vector<PicturePlace> made_for(const std::set<std::size_t>& computed) const {
    return plan->pictures_to_make([&](std::size_t pack) { return computed.contains(pack); }, images,
                                  kEncoder, nothing);
  }

  Squares images;
  std::vector<Pack> packs;
  std::vector<Request> requests;
  std::optional<PicturePlan> plan;
};

std::vector<PictureBatch> batches_of(const PicturePlan& plan) {
  return {plan.batches().begin(), plan.batches().end()};
}

}  // namespace

TEST_CASE("a run prepares each pack's pictures in the order of their index, equal ones once") {
  // 103 is the same picture as 3.
  const Scene scene({{103, 5, 7, 3}, {5}, {3}}, 100);

  const auto order = scene.plan->pictures_to_make(all_packs, scene.images, kEncoder, nothing);

  // 5 is still there for pack 1; 3 was forgotten meanwhile.
  CHECK(order == std::vector<PicturePlace>{{0, 3}, {0, 5}, {0, 7}, {2, 3}});
}

TEST_CASE(
    "each picture of a pack is from one batch: its own, or that of packs before without gap") {
  const Scene scene({{0, 1, 2}, {2, 3}, {2, 3, 4}, {0, 1}});

  CHECK(batches_of(*scene.plan) == std::vector<PictureBatch>{{0, 1}, {2}, {3}, {4}, {0, 1}});
  CHECK(scene.plan->batch_of(0, 1) == 0);
  CHECK(scene.plan->batch_of(1, 2) == 1);
  CHECK(scene.plan->batch_of(2, 2) == 1);
  CHECK(scene.plan->batch_of(2, 3) == 2);
  CHECK(scene.plan->batch_of(3, 1) == 4);
}

TEST_CASE("a pack behind one that is passed over makes the whole batch of what it takes over") {
  const Scene scene({{0, 1}, {1, 2, 3}, {3, 4}});

  CHECK(scene.made_for({0, 1, 2}) ==
        std::vector<PicturePlace>{{0, 0}, {0, 1}, {1, 2}, {1, 3}, {2, 4}});
  // 1 beside 0, as it stood there.
  CHECK(scene.made_for({1, 2}) ==
        std::vector<PicturePlace>{{1, 0}, {1, 1}, {1, 2}, {1, 3}, {2, 4}});
  CHECK(scene.made_for({2}) == std::vector<PicturePlace>{{2, 2}, {2, 3}, {2, 4}});
  CHECK(scene.made_for({}).empty());
}

TEST_CASE("what is shown again behind a gap is made again, whether the gap is computed or not") {
  const Scene scene({{0, 1}, {2}, {0}});

  CHECK(scene.made_for({0, 1, 2}) == std::vector<PicturePlace>{{0, 0}, {0, 1}, {1, 2}, {2, 0}});
  CHECK(scene.made_for({0, 2}) == std::vector<PicturePlace>{{0, 0}, {0, 1}, {2, 0}});
}

TEST_CASE("what a pack holds is not made again for one behind others that are passed over") {
  const Scene scene({{0, 1}, {1, 2}, {1, 3}});

  CHECK(scene.made_for({0, 2}) == std::vector<PicturePlace>{{0, 0}, {0, 1}, {2, 3}});
}

TEST_CASE("of each pack's batches only those are made that are not there as a whole") {
  const Scene scene({{0, 1, 2}, {3, 4}, {5}});
  const auto key_of = [&](std::vector<std::size_t> batch) {
    return *batch_key(batch, scene.images, kEncoder);
  };
  const std::set<Sha256Digest> kept = {key_of({0, 1}), key_of({3}), key_of({5})};
  std::vector<Sha256Digest> asked;
  const auto is_there = [&](const Sha256Digest& batch) {
    asked.push_back(batch);
    return kept.contains(batch);
  };

  const auto to_make = scene.plan->pictures_to_make(all_packs, scene.images, kEncoder, is_there);

  // 3 is kept alone, and stands beside 4 here: its bits may be others.
  CHECK(to_make == std::vector<PicturePlace>{{0, 2}, {1, 3}, {1, 4}});
  CHECK(asked ==
        std::vector<Sha256Digest>{key_of({0, 1}), key_of({2}), key_of({3, 4}), key_of({5})});
}

TEST_CASE("a batch without a key is made, whatever is there") {
  Scene scene({{0, 1}}, 4);
  scene.images.unknown = 1;

  const auto to_make = scene.plan->pictures_to_make(all_packs, scene.images, kEncoder, everything);

  CHECK(to_make == std::vector<PicturePlace>{{0, 1}});
}
