#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>

#include "evaluator/vision/picture_cache.h"
#include "evaluator/vision/pixel_makers.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::vision;
using std::chrono::hours;
using std::chrono::minutes;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kEntry = 64 + 28 * 28 * 3;  // of picture()

struct Bench {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  ProcessorSettings settings;

  Bench() { files.set_free_bytes(100 * kMiB); }

  PictureCache cache(std::uint64_t bytes = kMiB, std::uint64_t keep_free = 0,
                     std::string made_by = "this") {
    return PictureCache(files, clock, {"/state/pictures", bytes, keep_free, std::move(made_by)});
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> found;
    for (const std::string& path : files.tree("/state/pictures")) {
      if (!path.ends_with('/')) found.push_back("/state/pictures/" + path);
    }
    return found;
  }
};

Sha256Digest digest(int number) {
  Sha256 hash;
  hash.update(std::to_string(number));
  return hash.finish();
}

PreparedImage picture(int number) {
  PreparedImage image;
  image.width = image.height = 28;
  image.grid_h = image.grid_w = 2;
  image.rgb.assign(28 * 28 * 3, static_cast<std::uint8_t>(number));
  return image;
}

}  // namespace

TEST_CASE("a kept picture is found, by another process too, with its pixels and its grid") {
  Bench bench;
  auto first = bench.cache();
  CHECK_FALSE(first.find(digest(1), bench.settings).has_value());
  PreparedImage image = picture(1);
  image.width = 56;
  image.grid_w = 4;
  image.rgb.resize(56 * 28 * 3, 7);
  first.keep(digest(1), bench.settings, image);

  auto second = bench.cache();
  const auto found = second.find(digest(1), bench.settings);

  REQUIRE(found.has_value());
  CHECK(found->rgb == image.rgb);
  CHECK(found->width == 56);
  CHECK(found->height == 28);
  CHECK(found->grid_t == 1);
  CHECK(found->grid_h == 2);
  CHECK(found->grid_w == 4);
  CHECK_FALSE(second.find(digest(2), bench.settings).has_value());
}

TEST_CASE("kept squares are found with the grid that their settings tell") {
  Bench bench;
  auto cache = bench.cache();
  bench.settings.anyres = Anyres{.tile = 28, .resolutions = {{.width = 56, .height = 28}}};
  PreparedImage image = picture(1);
  image.height = 84;  // three squares below each other
  image.rgb.resize(84 * 28 * 3, 7);
  cache.keep(digest(1), bench.settings, image);

  const auto found = cache.find(digest(1), bench.settings);

  REQUIRE(found.has_value());
  CHECK(found->grid_t == 3);
  CHECK(found->grid_h == 2);
  CHECK(found->grid_w == 2);
}

TEST_CASE("whatever changes pixels has an entry of its own") {
  Bench bench;
  auto cache = bench.cache();
  cache.keep(digest(1), bench.settings, picture(1));

  std::vector<ProcessorSettings> others(6, bench.settings);
  others[0].max_pixels -= 1;
  others[1].min_pixels -= 1;
  others[2].sizing = Sizing::kProcessor;
  others[3].slow_processor = true;
  others[4].patch_size = 16;
  others[5].merge_size = 4;
  for (const ProcessorSettings& other : others)
    CHECK_FALSE(cache.find(digest(1), other).has_value());
  CHECK_FALSE(bench.cache(kMiB, 0, "another build").find(digest(1), bench.settings).has_value());

  ProcessorSettings squares = bench.settings;
  squares.anyres = Anyres{.tile = 28, .resolutions = {{.width = 28, .height = 28}}};
  CHECK_FALSE(cache.find(digest(1), squares).has_value());
  cache.keep(digest(1), squares, picture(1));
  CHECK(cache.find(digest(1), squares).has_value());
  squares.anyres->resolutions.push_back({.width = 56, .height = 28});
  CHECK_FALSE(cache.find(digest(1), squares).has_value());
  squares.anyres->resolutions.pop_back();
  squares.anyres->tile = 14;
  CHECK_FALSE(cache.find(digest(1), squares).has_value());

  // These are applied to the pixels later.
  ProcessorSettings same = bench.settings;
  same.image_mean = {0.5, 0.5, 0.5};
  CHECK(cache.find(digest(1), same).has_value());
}

TEST_CASE("a damaged entry is not used, and made anew") {
  Bench bench;
  auto cache = bench.cache();
  cache.keep(digest(1), bench.settings, picture(1));
  REQUIRE(bench.entries().size() == 1);
  const std::string path = bench.entries()[0];
  const std::string whole = *bench.files.content(path);
  REQUIRE(whole.size() == kEntry);

  const auto check_refused = [&](const std::string& content) {
    bench.files.put_file(path, content);
    CHECK_FALSE(cache.find(digest(1), bench.settings).has_value());
    CHECK_FALSE(bench.files.exists(path));
  };
  for (std::size_t at = 0; at < 80; ++at) {
    INFO("byte " << at);
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    check_refused(changed);
  }
  std::string changed = whole;
  changed.back() = static_cast<char>(changed.back() ^ 0x80);
  check_refused(changed);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, whole.size() - 1}) {
    check_refused(whole.substr(0, size));
  }
  check_refused(whole + "x");

  cache.keep(digest(1), bench.settings, picture(1));
  CHECK(cache.find(digest(1), bench.settings).has_value());
}

TEST_CASE("an entry under another's name is not used") {
  Bench bench;
  auto cache = bench.cache();
  cache.keep(digest(1), bench.settings, picture(1));
  const std::string one = bench.entries()[0];
  const std::string content = *bench.files.content(one);
  REQUIRE(bench.files.remove_file(one).has_value());
  cache.keep(digest(2), bench.settings, picture(2));
  bench.files.put_file(bench.entries()[0], content);

  CHECK_FALSE(cache.find(digest(2), bench.settings).has_value());
}

TEST_CASE("a full cache keeps what is in use, and gives up what nobody asked for in a day") {
  Bench bench;
  auto cache = bench.cache(10 * kEntry);
  for (int i = 0; i < 10; ++i) cache.keep(digest(i), bench.settings, picture(i));
  cache.keep(digest(10), bench.settings, picture(10));
  CHECK(bench.entries().size() == 10);
  CHECK(cache.find(digest(0), bench.settings).has_value());
  CHECK_FALSE(cache.find(digest(10), bench.settings).has_value());

  bench.clock.advance(hours{23});
  for (int i = 0; i < 8; ++i) CHECK(cache.find(digest(i), bench.settings).has_value());
  bench.clock.advance(hours{2});
  cache.keep(digest(10), bench.settings, picture(10));

  for (int i = 0; i < 8; ++i) CHECK(cache.find(digest(i), bench.settings).has_value());
  CHECK(cache.find(digest(10), bench.settings).has_value());
  CHECK(bench.entries().size() < 11);
}

TEST_CASE("what other processes keep counts, too") {
  Bench bench;
  auto mine = bench.cache(32 * kEntry);
  auto theirs = bench.cache(32 * kEntry);
  mine.keep(digest(0), bench.settings, picture(0));
  for (int i = 1; i < 32; ++i) theirs.keep(digest(i), bench.settings, picture(i));
  for (int i = 32; i < 64; ++i) mine.keep(digest(i), bench.settings, picture(i));

  CHECK(bench.entries().size() <= 32 + 3);
}

TEST_CASE("the disk's last bytes are others': the oldest entries go, whoever uses them") {
  Bench bench;
  auto cache = bench.cache(kMiB, 100 * kMiB);
  cache.keep(digest(0), bench.settings, picture(0));
  CHECK(bench.entries().empty());  // nothing above what is to stay free

  bench.clock.advance(minutes{11});
  bench.files.set_free_bytes(100 * kMiB + 4 * kEntry);
  for (int i = 0; i < 4; ++i) {
    cache.keep(digest(i), bench.settings, picture(i));
    bench.clock.advance(std::chrono::seconds{1});
  }
  CHECK(bench.entries().size() == 4);

  bench.files.set_free_bytes(100 * kMiB - 2 * kEntry);  // the trainer wrote
  cache.keep(digest(9), bench.settings, picture(9));
  CHECK(bench.entries().size() <= 2);
  CHECK_FALSE(cache.find(digest(0), bench.settings).has_value());
}

TEST_CASE("a disk that takes nothing costs nothing but the next decoding") {
  Bench bench;
  auto cache = bench.cache();
  bench.files.set_read_only("/state");
  cache.keep(digest(1), bench.settings, picture(1));
  CHECK_FALSE(cache.find(digest(1), bench.settings).has_value());

  Bench full;
  auto other = full.cache();
  other.keep(digest(1), full.settings, picture(1));
  full.files.fail_operation("append", ENOSPC);
  other.keep(digest(2), full.settings, picture(2));
  CHECK(full.entries().size() == 1);  // and no temporary file
  CHECK_FALSE(other.find(digest(2), full.settings).has_value());
  CHECK(other.find(digest(1), full.settings).has_value());
}

TEST_CASE("a picture above the whole budget is not kept") {
  Bench bench;
  auto cache = bench.cache(kEntry - 1);
  cache.keep(digest(1), bench.settings, picture(1));
  CHECK(bench.entries().empty());
}

TEST_CASE("a process that was killed while it kept a picture leaves nothing for long") {
  Bench bench;
  bench.files.put_file("/state/pictures/ab/.abcd.tmp.999999999.0", "half");
  auto cache = bench.cache();
  cache.keep(digest(1), bench.settings, picture(1));
  CHECK_FALSE(bench.files.exists("/state/pictures/ab/.abcd.tmp.999999999.0"));
}

TEST_CASE("the makers of pixels are this program and its decoders") {
  const RealFileSystem files;
  const std::string makers = pixel_makers(files);
  CHECK(makers == pixel_makers(files));
  CHECK(std::ranges::count(makers, ' ') >= 2);
}
