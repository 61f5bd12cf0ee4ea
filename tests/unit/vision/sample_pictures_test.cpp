#include "evaluator/vision/sample_pictures.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "evaluator/vision/small_picture.h"
#include "store/protocol/picture_name.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::vision;
using std::chrono::hours;
using std::chrono::minutes;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kBlock = 4096;

Sha256Digest digest(int number) {
  Sha256 hash;
  hash.update(std::to_string(number));
  return hash.finish();
}

/// A smooth picture: of what a photograph is made, as far as a JPEG is concerned.
Image gradient(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.rgb.push_back(static_cast<std::uint8_t>(255 * x / width));
      image.rgb.push_back(static_cast<std::uint8_t>(255 * y / height));
      image.rgb.push_back(128);
    }
  }
  return image;
}

struct Bench {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};

  Bench() { files.set_free_bytes(100 * kMiB); }
  SamplePictures pictures(std::uint64_t bytes = kMiB, std::uint64_t keep_free = 0) {
    return SamplePictures(files, clock, {"/state/sample-pictures", bytes, keep_free});
  }
  static std::string path(int number) {
    return protocol::sample_picture_path("/state/sample-pictures",
                                         protocol::sample_picture_name(digest(number)));
  }
  std::size_t count() const {
    const auto tree = files.tree("/state/sample-pictures");
    return static_cast<std::size_t>(
        std::ranges::count_if(tree, [](const auto& name) { return !name.ends_with('/'); }));
  }
};

}  // namespace

// Sizes by Pillow 13.0: Image.new("RGB", size).thumbnail((512, 512)).
TEST_CASE("a small picture has the size of Pillow's thumbnail") {
  struct Row {
    ImageSize of, small;
  };
  const Row rows[] = {
      {{1700, 2200}, {396, 512}}, {{2200, 1700}, {512, 396}}, {{512, 512}, {512, 512}},
      {{513, 512}, {512, 511}},   {{1000, 3}, {512, 2}},      {{3, 1000}, {2, 512}},
      {{1024, 683}, {512, 342}},  {{5000, 4999}, {512, 512}}, {{700, 500}, {512, 366}},
      {{100, 50}, {100, 50}},     {{20000, 10}, {512, 1}},    {{1333, 2000}, {341, 512}},
      {{640, 427}, {512, 342}}};
  for (const Row& row : rows) {
    const ImageSize size = small_size(row.of.width, row.of.height, 512);
    INFO(row.of.width << " x " << row.of.height);
    CHECK(size.width == row.small.width);
    CHECK(size.height == row.small.height);
  }
}

TEST_CASE("a small picture is a JPEG that looks like the picture") {
  for (const auto& [width, height] : {std::pair(1024, 600), {600, 1024}, {40, 30}, {1, 1}}) {
    const auto jpeg = small_jpeg(gradient(width, height), 512);
    REQUIRE(jpeg.has_value());
    const auto small = decode_image(*jpeg, "small");
    REQUIRE(small.has_value());
    const ImageSize size = small_size(width, height, 512);
    CHECK(small->width == size.width);
    CHECK(small->height == size.height);
    const Image expected = gradient(size.width, size.height);
    int worst = 0;
    for (std::size_t i = 0; i < expected.rgb.size(); ++i) {
      worst = std::max(worst, std::abs(int{expected.rgb[i]} - int{small->rgb[i]}));
    }
    CHECK(worst <= 10);
  }
  CHECK(small_jpeg(Image{}, 512).error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("a picture is written once, whole, readable by the owner alone") {
  Bench bench;
  auto pictures = bench.pictures();
  CHECK(pictures.wants(digest(1)));
  pictures.keep(digest(1), gradient(600, 300));
  CHECK(protocol::is_whole_sample_picture(bench.files.content(Bench::path(1)).value()));
  const auto info = bench.files.info(Bench::path(1));
  CHECK((info->mode & 0777U) == 0600);

  CHECK_FALSE(pictures.wants(digest(1)));
  CHECK_FALSE(bench.pictures().wants(digest(1)));  // nor does the next process
  bench.files.reset_calls();
  pictures.keep(digest(1), gradient(600, 300));
  CHECK(bench.files.count("create") == 0);
  CHECK(bench.files.count("rename") == 0);
}

TEST_CASE("a file that a crash tore is written again") {
  Bench bench;
  auto pictures = bench.pictures();
  pictures.keep(digest(1), gradient(60, 30));
  const std::string whole = bench.files.content(Bench::path(1)).value();

  for (const std::string& torn :
       {std::string(), whole.substr(0, 1), whole.substr(0, 7), whole.substr(0, whole.size() / 2),
        whole.substr(0, whole.size() - 1), std::string(whole.size(), '\0')}) {
    bench.files.put_file(Bench::path(1), torn);
    INFO(torn.size());
    CHECK(pictures.wants(digest(1)));
    pictures.keep(digest(1), gradient(60, 30));
    CHECK(bench.files.content(Bench::path(1)) == whole);
  }
}

TEST_CASE("the budget bounds how many there are, and what nobody asked for in a day goes first") {
  Bench bench;
  auto pictures = bench.pictures(10 * kBlock);
  for (int i = 0; i < 12; ++i) pictures.keep(digest(i), gradient(8, 8));  // far below a block each
  CHECK(bench.count() == 10);
  CHECK_FALSE(pictures.wants(digest(11)));  // no room: nothing is decoded for it

  bench.clock.advance(hours{23});
  for (int i = 0; i < 8; ++i) CHECK_FALSE(pictures.wants(digest(i)));  // the page's own, still
  bench.clock.advance(hours{2});
  CHECK(pictures.wants(digest(11)));
  pictures.keep(digest(11), gradient(8, 8));

  CHECK(bench.files.exists(Bench::path(11)));
  CHECK_FALSE(bench.files.exists(Bench::path(8)));
  CHECK_FALSE(bench.files.exists(Bench::path(9)));
  for (int i = 0; i < 8; ++i) CHECK(bench.files.exists(Bench::path(i)));
}

TEST_CASE("the disk's last bytes are others'") {
  Bench bench;
  auto pictures = bench.pictures(kMiB, 100 * kMiB);
  pictures.keep(digest(1), gradient(8, 8));
  CHECK(bench.count() == 0);
}

TEST_CASE("a disk that takes nothing costs the picture, and is asked again after a while") {
  Bench bench;
  auto pictures = bench.pictures();
  bench.files.fail_operation("append", ENOSPC);
  pictures.keep(digest(1), gradient(8, 8));
  CHECK(bench.count() == 0);  // and no temporary file
  CHECK_FALSE(pictures.wants(digest(2)));

  bench.clock.advance(minutes{11});
  CHECK(pictures.wants(digest(1)));
  pictures.keep(digest(1), gradient(8, 8));
  CHECK(bench.count() == 1);

  Bench sealed;
  sealed.files.set_read_only("/state");
  auto none = sealed.pictures();
  none.keep(digest(1), gradient(8, 8));
  CHECK(sealed.count() == 0);
}

TEST_CASE("what lies in the way of one picture's file costs that picture alone") {
  Bench bench;
  auto pictures = bench.pictures();
  bench.files.put_directory(Bench::path(1));
  pictures.keep(digest(1), gradient(8, 8));
  CHECK(pictures.wants(digest(2)));
  pictures.keep(digest(2), gradient(8, 8));
  CHECK(bench.files.exists(Bench::path(2)));
}

TEST_CASE("a folder that cannot be made is told, once") {
  Bench bench;
  bench.files.put_file("/state", "a file where the folder belongs");
  auto pictures = bench.pictures();
  std::ostringstream told;
  std::streambuf* const standard = std::cerr.rdbuf(told.rdbuf());
  pictures.keep(digest(1), gradient(8, 8));
  bench.clock.advance(minutes{11});
  pictures.keep(digest(2), gradient(8, 8));
  std::cerr.rdbuf(standard);
  CHECK(told.str().find("warning: pictures of samples: ") == 0);
  CHECK(std::ranges::count(told.str(), '\n') == 1);
}
