#include "agent/webhook/signature.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using webhook::hmac_sha256_hex;

// RFC 4231, test cases 1, 2 and 6.
TEST_CASE("the signature is that of RFC 4231, for keys shorter and longer than a block") {
  CHECK(hmac_sha256_hex(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac_sha256_hex("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac_sha256_hex(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("a secret that is empty, or that everybody may read, is refused") {
  const test::TemporaryDirectory folder;
  RealFileSystem files;
  const auto secret = [&](const std::string& text, std::uint32_t mode) {
    const std::string path = folder / "secret";
    CHECK(write_file_atomically(files, path, text, mode).has_value());
    return webhook::read_secret(files, path);
  };
  CHECK(secret("s3cret\r\n", 0600).value() == "s3cret");
  CHECK(secret("s3cret", 0644).error().message.find("chmod 600") != std::string::npos);
  CHECK(secret("\n", 0600).error().message.find("is empty") != std::string::npos);
  CHECK(webhook::read_secret(files, folder / "none").error().code == ErrorCode::kNotFound);
}
