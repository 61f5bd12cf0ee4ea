#include "evaluator/service/preparation_cache.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::service;
using std::chrono::seconds;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

Sha256Digest digest(int number) {
  Sha256 hash;
  hash.update(std::to_string(number));
  return hash.finish();
}

/// A document whose prompt shows these pictures, among them one of four questions about a page; one
/// of given tokens; one of which nothing is asked.
std::vector<PreparedDocument> documents() {
  PreparedDocument page{
      .doc_id = 7, .json = R"({"q":"é"})", .input = "Q", .requests = {}, .pictures = {0, 1}};
  page.requests.emplace_back().tokens = {5, 151655, 151655, 151655, 151655, 9, 9, -1, 0};
  PreparedDocument scored{
      .doc_id = 8, .json = "{}", .input = "", .requests = {}, .pictures = {1}, .cut = true};
  for (const int i : {0, 1}) {
    engine::Request& request = scored.requests.emplace_back();
    request.tokens = {1, 2, 3};
    engine::Scoring& scoring = request.scoring.emplace();
    if (i == 0) scoring.spans = {{1, 2}, {2, 3}};
    if (i == 1) scoring.continuations = {{4}, {5, 5, 6}};
  }
  return {page,
          scored,
          {.doc_id = 900, .json = "[]", .input = "nothing", .requests = {}, .pictures = {}}};
}

std::vector<PreparedPicture> pictures() {
  return {{.doc_id = 7,
           .position = 0,
           .digest = digest(1),
           .size = {.grid_t = 3, .grid_h = 4, .grid_w = 6, .tokens = 6, .picture = {300, 200}}},
          {.doc_id = 7,
           .position = 1,
           .digest = digest(2),
           .size = {.grid_h = 2, .grid_w = 2, .tokens = 1, .picture = {20, 30}},
           .is_cut_off = true}};
}

PreparedTaskPacker packer() {
  PreparedTaskPacker made;
  for (const PreparedDocument& document : documents()) {
    std::vector<PreparedPicture> shown;
    for (const std::size_t place : document.pictures) {
      shown.push_back(pictures()[place]);
      shown.back().doc_id = document.doc_id;  // where it is met again, it is known already
    }
    made.add(document, shown);
  }
  return made;
}

struct Bench {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  ReadRecord record{files, clock};

  Bench() {
    files.set_free_bytes(100 * kMiB);
    files.put_file("/d/val.parquet", "rows");
    clock.advance(seconds{10});
    REQUIRE(record.open_readable("/d/val.parquet").has_value());
  }
  PreparationCache cache(std::uint64_t bytes = kMiB, std::string made_by = "this") {
    return PreparationCache(files, clock, {"/state/prepared", bytes, 0, std::move(made_by)});
  }
  void keep(PreparationCache& cache, const PreparationKey& key) {
    cache.keep(key, {.size = 40, .data_fingerprint = "val.parquet 4 1\n", .shots = 2}, packer(),
               record);
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> found;
    for (const std::string& path : files.tree("/state/prepared")) {
      if (!path.ends_with('/')) found.push_back("/state/prepared/" + path);
    }
    return found;
  }
};

}  // namespace

TEST_CASE("a kept task is found whole, by another process too") {
  Bench bench;
  auto first = bench.cache();
  const PreparationKey key = first.key_of(digest(1), "common", "{}");
  CHECK_FALSE(first.find(key, bench.files).has_value());
  bench.keep(first, key);

  auto second = bench.cache();
  const auto found = second.find(second.key_of(digest(1), "common", "{}"), bench.files);

  REQUIRE(found.has_value());
  CHECK(found->size == 40);
  CHECK(found->data_fingerprint == "val.parquet 4 1\n");
  CHECK(found->shots == 2);
  REQUIRE(found->read.size() == 1);
  CHECK(found->read[0].path == "/d/val.parquet");
  REQUIRE(found->pictures.size() == 2);
  for (const std::size_t i : {0U, 1U}) {
    const PreparedPicture expected = pictures()[i];
    const PreparedPicture& picture = found->pictures[i];
    CHECK(picture.doc_id == 7);
    CHECK(picture.position == expected.position);
    CHECK(picture.digest == expected.digest);
    CHECK(picture.size.grid_t == expected.size.grid_t);
    CHECK(picture.size.grid_h == expected.size.grid_h);
    CHECK(picture.size.grid_w == expected.size.grid_w);
    CHECK(picture.size.tokens == expected.size.tokens);
    CHECK(picture.size.picture == expected.size.picture);
    CHECK(picture.is_cut_off == expected.is_cut_off);
  }
  const auto expected = documents();
  REQUIRE(found->documents.size() == expected.size());
  for (std::size_t d = 0; d < expected.size(); ++d) {
    INFO(d);
    const PreparedDocument& document = found->documents[d];
    CHECK(document.doc_id == expected[d].doc_id);
    CHECK(document.json == expected[d].json);
    CHECK(document.input == expected[d].input);
    CHECK(document.pictures == expected[d].pictures);
    CHECK(document.cut == expected[d].cut);
    REQUIRE(document.requests.size() == expected[d].requests.size());
    for (std::size_t r = 0; r < document.requests.size(); ++r) {
      const engine::Request& request = document.requests[r];
      const engine::Request& wanted = expected[d].requests[r];
      CHECK(request.tokens == wanted.tokens);
      REQUIRE(request.scoring.has_value() == wanted.scoring.has_value());
      if (!wanted.scoring.has_value()) continue;
      CHECK(request.scoring->continuations == wanted.scoring->continuations);
      REQUIRE(request.scoring->spans.size() == wanted.scoring->spans.size());
      for (std::size_t s = 0; s < wanted.scoring->spans.size(); ++s) {
        CHECK(request.scoring->spans[s].begin == wanted.scoring->spans[s].begin);
        CHECK(request.scoring->spans[s].end == wanted.scoring->spans[s].end);
      }
    }
  }
}

TEST_CASE("a task of other data, settings, answers or another build is another one") {
  Bench bench;
  auto cache = bench.cache();
  bench.keep(cache, cache.key_of(digest(1), "common", "{}"));

  CHECK(cache.find(cache.key_of(digest(1), "common", "{}"), bench.files).has_value());
  CHECK_FALSE(cache.find(cache.key_of(digest(2), "common", "{}"), bench.files).has_value());
  CHECK_FALSE(cache.find(cache.key_of(digest(1), "other", "{}"), bench.files).has_value());
  CHECK_FALSE(cache.find(cache.key_of(digest(1), "common", "[]"), bench.files).has_value());
  auto other = bench.cache(kMiB, "another build");
  CHECK_FALSE(other.find(other.key_of(digest(1), "common", "{}"), bench.files).has_value());
}

TEST_CASE("a file that the task was made of and that is another one now makes it unknown") {
  Bench bench;
  auto cache = bench.cache();
  const PreparationKey key = cache.key_of(digest(1), "common", "{}");
  bench.keep(cache, key);
  const std::int64_t date = bench.files.info("/d/val.parquet")->mtime_ns;
  bench.files.put_file("/d/val.parquet", "ROWS");
  REQUIRE(bench.files.set_mtime("/d/val.parquet", date).has_value());

  CHECK_FALSE(cache.find(key, bench.files).has_value());
}

TEST_CASE("what cannot be proved is not kept") {
  Bench bench;
  auto cache = bench.cache();
  bench.files.put_file("/d/val.parquet", "ROWS");  // while it was prepared
  bench.clock.advance(seconds{10});
  bench.keep(cache, cache.key_of(digest(1), "common", "{}"));

  CHECK(bench.entries().empty());
}

TEST_CASE("each truncation and each changed byte of an entry is seen, and it is made anew") {
  Bench bench;
  auto cache = bench.cache();
  const PreparationKey key = cache.key_of(digest(1), "common", "{}");
  bench.keep(cache, key);
  REQUIRE(bench.entries().size() == 1);
  const std::string path = bench.entries()[0];
  const std::string whole = *bench.files.content(path);
  const auto check_refused = [&](const std::string& content) {
    bench.files.put_file(path, content);
    CHECK_FALSE(cache.find(key, bench.files).has_value());
    CHECK_FALSE(bench.files.exists(path));
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    INFO("byte " << at);
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (at % 2 == 0 ? 1 : 0x80));
    check_refused(changed);
    check_refused(whole.substr(0, at));
  }
  check_refused(whole + '\0');
  check_refused("evctask3" + whole.substr(8));

  bench.keep(cache, key);
  CHECK(cache.find(key, bench.files).has_value());
}

TEST_CASE("an entry under another's name is not used") {
  Bench bench;
  auto cache = bench.cache();
  const PreparationKey one = cache.key_of(digest(1), "common", "{}");
  const PreparationKey other = cache.key_of(digest(2), "common", "{}");
  bench.keep(cache, one);
  const std::string content = *bench.files.content(bench.entries()[0]);
  REQUIRE(bench.files.remove_file(bench.entries()[0]).has_value());
  bench.keep(cache, other);
  bench.files.put_file(bench.entries()[0], content);

  CHECK_FALSE(cache.find(other, bench.files).has_value());
}

TEST_CASE("an entry that is above the cache's budget is not kept") {
  Bench bench;
  auto cache = bench.cache(100);
  bench.keep(cache, cache.key_of(digest(1), "common", "{}"));
  CHECK(bench.entries().empty());
}

TEST_CASE("packed numbers, texts and tokens come back as they were") {
  PackedWriter out;
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128}, UINT64_MAX})
    out.number(value);
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, INT64_MAX, INT64_MIN})
    out.whole(value);
  out.text("");
  out.text(std::string(300, 'x'));
  const std::vector<std::int32_t> ids = {INT32_MIN, INT32_MAX, 7, 7, 7, -1, -1};
  out.tokens(ids);
  out.tokens({});
  out.digest(digest(3));

  PackedReader in(out.bytes(), ids.size());
  CHECK(in.number() == 0);
  CHECK(in.number() == 127);
  CHECK(in.number() == 128);
  CHECK(in.number() == UINT64_MAX);
  CHECK(in.whole() == 0);
  CHECK(in.whole() == -1);
  CHECK(in.whole() == INT64_MAX);
  CHECK(in.whole() == INT64_MIN);
  CHECK(in.text().empty());
  CHECK(in.text() == std::string(300, 'x'));
  CHECK(in.tokens() == ids);
  CHECK(in.tokens().empty());
  CHECK(in.digest() == digest(3));
  CHECK(in.is_whole());
}

TEST_CASE("bytes that nobody packed give nothing, and no memory is taken for what they claim") {
  const auto claims = [](std::uint64_t count, std::uint64_t length) {
    PackedWriter out;
    out.number(count);
    out.number(5U << 1U | 1U);
    out.number(length);
    return out.bytes();
  };
  for (const auto& [count, length] :
       {std::pair<std::uint64_t, std::uint64_t>{101, 101},  // above the limit
        {UINT64_MAX, UINT64_MAX},
        {10, 11},  // a run over the end
        {10, 0},
        {10, 9}}) {  // one is missing
    INFO(count << " " << length);
    const std::string bytes = claims(count, length);
    PackedReader in(bytes, 100);
    CHECK(in.tokens().empty());
    CHECK_FALSE(in.is_whole());
  }
  const std::string endless(11, '\xff');
  PackedReader number(endless, 100);
  CHECK(number.number() == 0);
  CHECK(number.failed());
  PackedWriter many;
  many.number(1000);
  PackedReader counted(many.bytes(), 100);
  CHECK(counted.count() == 0);
  PackedReader text(many.bytes(), 100);
  CHECK(text.text().empty());
  CHECK_FALSE(text.is_whole());
}
