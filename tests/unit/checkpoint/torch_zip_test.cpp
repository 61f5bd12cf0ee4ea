#include "store/checkpoint/torch_zip.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>

#include "tests/unit/checkpoint/torch_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<ZipPart> good_parts() { return torch_parts("\x80\x02N.", {{"0", "abcdefgh"}}); }

/// Reads the directory and, as a user of it does, the pickle.
Status read_zip(const std::string& bytes) {
  const MemoryFile file(bytes);
  EVALCAR_ASSIGN_OR_RETURN(const TorchZip zip, TorchZip::read(file, "t.pt"));
  const ZipRecord* const data = zip.find("data.pkl");
  if (data == nullptr) return make_error(ErrorCode::kCorruption, "t.pt: no data.pkl");
  EVALCAR_ASSIGN_OR_RETURN(const std::string text, zip.read_record(file, *data, 1000, "t.pt"));
  return {};
}

struct BadZip {
  const char* slug;
  const char* why;  // what its message says: not refused for something else
  std::string bytes;
  bool of_whole = false;  // what is wrong is at no place of its own
};

/// A record within the bytes of the last one, where a whole header of its own stands: both are
/// sound, and share bytes.
void put_within_the_last(std::vector<ZipPart>& parts) {
  const auto records_of = [](const std::vector<ZipPart>& some) {
    const std::string zip = make_zip(some);
    return zip.substr(0, zip.find("PK\x01\x02"));
  };
  ZipPart inner{.name = "archive/data/inner", .data = "bytes", .flags = 0};
  const std::string bytes = records_of({inner});
  ZipPart& outer = parts.back();
  outer.flags = 0;
  outer.data = bytes;
  inner.in_directory_only = true;
  inner.claimed_offset = records_of(parts).size() - bytes.size();
  parts.push_back(inner);
}

/// The corpus "torch.save zip" of the fault list, as far as it concerns the container.
std::vector<BadZip> bad_zips() {
  const auto with = [](const std::function<void(std::vector<ZipPart>&)>& change, ZipEnd end = {}) {
    std::vector<ZipPart> parts = good_parts();
    change(parts);
    return make_zip(parts, end);
  };
  const auto nothing = [](std::vector<ZipPart>&) {};
  const std::string good = make_zip(good_parts());
  return {
      {"z-not-zip", "no ZIP record at byte 0",
       "this is some text that is longer than an end record"},
      {"z-lfs-pointer", "git-lfs pointer",
       "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", true},
      {"p-legacy-torch", "legacy format",
       std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15), true},
      {"p-legacy-torch-tar", "legacy format",
       "sys_info" + std::string(249, '\0') + "ustar" + std::string(250, '\0'), true},
      {"z-fake-eocd", "does not end at the end record",
       with(nothing, {.comment = std::string("PK\x05\x06") + std::string(18, '\0')})},
      {"z-two-eocd", "does not end at the end record", good + good.substr(good.size() - 22)},
      {"z-prefix-junk", "the ZIP64 locator points elsewhere", "PK\x03\x04junk" + good},
      {"z-appended", "the ZIP64 locator points elsewhere", good + good},
      {"z-name-mismatch", "another name in its local header",
       with([](auto& p) { p[0].local_name = "archive/data.pkx"; })},
      {"z-flag-encrypted", "has flags", with([](auto& p) { p[0].flags |= 1; })},
      {"z-flag-patch", "has flags", with([](auto& p) { p[0].flags |= 0x20; })},
      {"z-flag-strong", "has flags", with([](auto& p) { p[0].flags |= 0x40; })},
      {"z-bad-crc", "CRC-32", with([](auto& p) { p[0].crc_xor = 1; })},
      {"z-deflate", "is compressed", with([](auto& p) { p[2].method = 8; })},
      {"z-overlap", "does not follow the one before", with(put_within_the_last)},
      {"z-dup-names", "two records are named", with([](auto& p) { p.push_back(p[0]); })},
      {"z-slip-dotdot", "the record name", with([](auto& p) { p[2].name = "archive/../../x"; })},
      {"z-slip-absolute", "the record name", with([](auto& p) { p[2].name = "/x"; })},
      {"z-slip-drive", "the record name", with([](auto& p) { p[2].name = "C:\\x"; })},
      {"z-slip-backslash", "the record name", with([](auto& p) { p[2].name = "archive\\x"; })},
      {"z-two-roots", "not below the root folder",
       with([](auto& p) { p[2].name = "other/data/0"; })},
      {"z-no-root", "not below the root folder", with([](auto& p) { p[2].name = "data"; })},
      {"z-size-lie", "runs past", with([](auto& p) { p[2].claimed_size = 2'200'000'000; })},
      {"z-size-lie-small", "has no data descriptor", with([](auto& p) { p[2].claimed_size = 9; })},
      {"z-local-extra-push", "runs past", with([](auto& p) {
         p[2].local_extra = 60000;
         p[2].data += std::string(60000, 'x');
         p[2].claimed_size = 130000;
       })},
      {"z-local-extra-lie", "runs past", with([](auto& p) { p[2].claimed_extra = 60000; })},
      {"z-zip64-size-lie", "runs past",
       with([](auto& p) { p[2].claimed_size = std::uint64_t{1} << 63U; })},
      {"z-zip64-offset-lie", "begins behind",
       with([](auto& p) { p[2].claimed_offset = std::uint64_t{1} << 63U; })},
      {"z-entry-count-lie", "cannot hold", with(nothing, {.entries = std::uint64_t{1} << 32U})},
      {"z-entry-count-one-less", "entries, expected 3", with(nothing, {.entries = 3})},
      {"z-directory-offset-lie", "does not end at the end record",
       with(nothing, {.directory_offset = 5})},
      {"z-directory-offset-wrap", "does not end at the end record",
       with(nothing, {.directory_offset = UINT64_MAX - 10})},
      {"z-multidisk", "a multi-disk ZIP", with(nothing, {.with_64 = false, .disk = 1})},
      {"z-torchscript", "TorchScript", with([](auto& p) { p[2].name = "archive/constants.pkl"; })},
      {"z-torchscript-code", "TorchScript", with([](auto& p) { p[2].name = "archive/code/a.py"; })},
      {"z-big-endian", "byte order", with([](auto& p) { p[1].data = "big"; })},
      {"z-no-pickle", "no data.pkl", with([](auto& p) { p[0].name = "archive/date.pkl"; }), true},
      {"z-pickle-too-large", "expected at most", with([](auto& p) { p[0].data.resize(1001); })},
  };
}

}  // namespace

TEST_CASE("a ZIP as torch writes it gives its records") {
  for (const bool with_64 : {true, false}) {
    const MemoryFile file(make_zip(good_parts(), {.with_64 = with_64}));

    const auto zip = TorchZip::read(file, "t.pt");

    REQUIRE(zip.has_value());
    REQUIRE(zip->find("data/0") != nullptr);
    CHECK(zip->find("data/0")->size == 8);
    CHECK(zip->read_record(file, *zip->find("data/0"), 100, "t.pt").value() == "abcdefgh");
    CHECK(zip->find("data/1") == nullptr);
    CHECK(check_zip_is_whole(file, "t.pt").has_value());
  }
}

TEST_CASE("a ZIP whose local headers are padded and hold their sizes is read too") {
  std::vector<ZipPart> parts = good_parts();
  parts[2].local_extra = 33;
  parts[2].flags = 0x0800;

  CHECK(read_zip(make_zip(parts)).has_value());
}

TEST_CASE("every bad ZIP is refused for good") {
  for (const BadZip& bad : bad_zips()) {
    INFO(bad.slug);
    const Status status = read_zip(bad.bytes);

    REQUIRE_FALSE(status.has_value());
    CHECK((status.error().code == ErrorCode::kCorruption ||
           status.error().code == ErrorCode::kUnsupported));
    CHECK_THAT(status.error().message, ContainsSubstring(bad.why));
    CHECK_THAT(status.error().message, ContainsSubstring("t.pt"));
    if (!bad.of_whole) CHECK_THAT(status.error().message, ContainsSubstring("at byte "));
  }
}

TEST_CASE("every truncation of a ZIP is told as unfinished") {
  const std::string good = make_zip(good_parts());
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO(size);
    const MemoryFile file(good.substr(0, size));

    CHECK(check_zip_is_whole(file, "t.pt").error().code == ErrorCode::kUnavailable);
    CHECK(TorchZip::read(file, "t.pt").error().code == ErrorCode::kUnavailable);
  }
}

TEST_CASE("no single flipped bit of a ZIP crashes the reader or moves a record out of the file") {
  const std::string good = make_zip(good_parts());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const auto zip = TorchZip::read(MemoryFile(bytes), "t.pt");
    if (!zip.has_value()) continue;
    for (const ZipRecord& record : zip->records()) {
      CHECK(record.offset + record.size <= bytes.size());
    }
  }
}

TEST_CASE("a ZIP with a comment, which torch never writes, does not count as whole") {
  const Status status = read_zip(make_zip(good_parts(), {.comment = "hello"}));

  CHECK(status.error().code == ErrorCode::kUnavailable);
}

TEST_CASE("a file that was written without checksums is read, one with a single zero CRC is not") {
  std::vector<ZipPart> parts = good_parts();
  const auto zero = [](ZipPart& part) {
    part.crc_xor = crc32(std::as_bytes(std::span<const char>(part.data)));
  };
  zero(parts[0]);
  CHECK(read_zip(make_zip(parts)).error().code == ErrorCode::kCorruption);

  parts = good_parts();
  for (ZipPart& part : parts) zero(part);
  CHECK(read_zip(make_zip(parts)).has_value());
}

TEST_CASE("the CRC is that of the ZIP standard, in one step or in several") {
  // 0xcbf43926 is the check value of the catalogue; the long one is zlib.crc32(bytes(range(100))).
  const std::string text = "123456789";
  CHECK(crc32(std::as_bytes(std::span<const char>(text))) == 0xcbf43926);
  std::vector<std::uint8_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), std::uint8_t{0});
  const auto bytes = std::as_bytes(std::span<const std::uint8_t>(numbers));
  CHECK(crc32(bytes) == 0x58c932f5);
  CHECK(crc32(bytes.subspan(37), crc32(bytes.first(37))) == 0x58c932f5);
  // Every length, each against one byte after another, which only the tables compute.
  std::vector<std::uint8_t> noise(700);
  std::uint32_t state = 1;
  for (std::uint8_t& byte : noise) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(state >> 24U);
  }
  const auto all = std::as_bytes(std::span<const std::uint8_t>(noise));
  std::uint32_t expected = 0;
  for (std::size_t size = 0; size < all.size(); ++size) {
    CHECK(crc32(all.first(size)) == expected);
    expected = crc32(all.subspan(size, 1), expected);
  }
}
