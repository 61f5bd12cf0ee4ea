#include "evaluator/engine/picture_batches.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

using namespace evalcar;
using namespace evalcar::engine;

namespace {

Sha256Digest digest_of(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

/// Pictures of one row of patches; nothing is ever loaded.
class Strips final : public ImageSource {
 public:
  explicit Strips(std::vector<int> patches) : patches_(std::move(patches)) {}
  std::size_t size() const override { return patches_.size(); }
  std::optional<Sha256Digest> content_of(std::size_t index) const override {
    if (index == unknown) return std::nullopt;
    return digest_of(std::to_string(index + offset));
  }
  vision::PreparedSize size_of(std::size_t index) const override {
    return {.grid_t = 1, .grid_h = 1, .grid_w = patches_[index]};
  }
  Result<vision::PreparedImage> load(std::size_t) const override {
    return make_error(ErrorCode::kInternal, "not to be loaded");
  }

  std::size_t unknown = ~std::size_t{0};
  std::size_t offset = 0;  ///< of the content of a picture from its index

 private:
  std::vector<int> patches_;
};

const Sha256Digest kEncoder = digest_of("encoder");

Sha256Digest key_of(std::vector<std::size_t> batch, const ImageSource& images,
                    const Sha256Digest& encoder = kEncoder) {
  const auto key = batch_key(batch, images, encoder);
  REQUIRE(key.has_value());
  return *key;
}

}  // namespace

TEST_CASE("pictures go together in their order while they fit, and a large one goes alone") {
  const Strips images({3, 4, 4, 12, 1, 9, 1});
  const std::vector<std::size_t> indices = {0, 1, 2, 3, 4, 5, 6};

  CHECK(picture_batches(indices, images, 10) ==
        std::vector<PictureBatch>{{0, 1}, {2}, {3}, {4, 5}, {6}});
  CHECK(picture_batches({}, images, 10).empty());
}

TEST_CASE("a batch is known by the contents, sizes and order of its pictures, and by the encoder") {
  const Strips images({4, 4, 4});
  Strips moved({4, 4, 4});
  moved.offset = 1;
  const Sha256Digest key = key_of({0, 1}, images);

  CHECK(key == key_of({0, 1}, images));
  CHECK(key_of({1, 2}, images) == key_of({0, 1}, moved));  // wherever they stand in the source
  CHECK(key != key_of({1, 0}, images));
  CHECK(key != key_of({0}, images));
  CHECK(key != key_of({0, 1, 2}, images));
  CHECK(key != key_of({0, 1}, moved));
  CHECK(key != key_of({0, 1}, Strips({4, 5, 4})));
  CHECK(key != key_of({0, 1}, images, digest_of("another")));
}

TEST_CASE("a batch with a picture whose content is not known has no key") {
  Strips images({4, 4, 4});
  images.unknown = 1;

  CHECK_FALSE(batch_key(std::vector<std::size_t>{0, 1}, images, kEncoder).has_value());
  CHECK(batch_key(std::vector<std::size_t>{0, 2}, images, kEncoder).has_value());
}
