#include "store/base/hash.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace evalcar;

namespace {
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
}  // namespace

// FIPS 180-4's own examples (NIST CSRC, "SHA256.pdf").
TEST_CASE("SHA-256 gives the published digests of the standard's examples") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 of pieces is that of the whole, wherever it is cut") {
  const std::string text = "the quick brown fox jumps over the lazy dog, twice over 64 bytes of it";
  const std::string whole = sha256_hex(text);

  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, cut));
    hash.update(bytes_of(std::string_view(text).substr(cut)));
    CHECK(to_hex(hash.finish()) == whole);
  }
}

TEST_CASE("SHA-256 of a long text is that of its bytes one by one, wherever it begins and ends") {
  std::string text(9000, '\0');
  std::uint32_t random = 1;
  for (char& c : text) {
    random = random * 1664525U + 1013904223U;
    c = static_cast<char>(random >> 24U);
  }

  for (std::size_t begin = 0; begin < 3; ++begin) {
    for (std::size_t size = 1; size <= text.size() - begin; ++size) {
      // About each multiple of a block, where one way of reading gives over to another.
      if ((size + 1) % 64 >= 3) continue;
      const std::string_view part = std::string_view(text).substr(begin, size);
      Sha256 bytewise;
      for (const char& c : part) bytewise.update(std::string_view(&c, 1));
      Sha256 at_once;
      at_once.update(part);
      Sha256 after_one_byte;
      after_one_byte.update(part.substr(0, 1));
      after_one_byte.update(part.substr(1));

      const std::string expected = to_hex(bytewise.finish());
      CHECK(to_hex(at_once.finish()) == expected);
      CHECK(to_hex(after_one_byte.finish()) == expected);
    }
  }
}

TEST_CASE("a finished SHA-256 starts anew") {
  Sha256 hash;
  hash.update("something else");
  (void)hash.finish();
  hash.update("abc");
  CHECK(to_hex(hash.finish()) == sha256_hex("abc"));
}

// Reference values of XXH3_64bits: that of the empty input is in its documentation, the
// other was printed by its Python binding.
TEST_CASE("XXH3 gives the reference's values") {
  CHECK(xxh3_64({}) == 0x2d06800538d394c2ULL);
  CHECK(xxh3_64(bytes_of("abc")) == 0x78af5f94892f3950ULL);
}

TEST_CASE("hexadecimal is lower case with leading zeros") {
  CHECK(to_hex(std::vector<std::uint8_t>{0x00, 0x0a, 0xff}) == "000aff");
}
