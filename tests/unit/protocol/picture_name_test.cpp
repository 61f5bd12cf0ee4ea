#include "store/protocol/picture_name.h"

#include <catch2/catch_test_macros.hpp>

#include "store/protocol/messages.h"

using namespace evalcar;
using namespace evalcar::protocol;

namespace {

const std::string kDigits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

}  // namespace

TEST_CASE("a picture is named by its digest, and lies in a folder of the first two letters") {
  Sha256 hash;
  hash.update("abc");  // FIPS 180-4's own example
  const std::string name = sample_picture_name(hash.finish());

  CHECK(name == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad.jpg");
  CHECK(is_sample_picture_name(name));
  CHECK(sample_picture_path("/state/sample-pictures", name) == "/state/sample-pictures/ba/" + name);
}

TEST_CASE("nothing else is such a name") {
  CHECK(is_sample_picture_name(kDigits + ".jpg"));
  for (const std::string& other :
       {std::string(), kDigits, kDigits + ".png", kDigits + ".JPG", kDigits + ".jpg/",
        kDigits + ".jpg.jpg", "0" + kDigits + ".jpg", kDigits.substr(1) + ".jpg",
        "A" + kDigits.substr(1) + ".jpg", "/" + kDigits.substr(1) + ".jpg",
        "../../" + kDigits.substr(6) + ".jpg", kDigits + std::string("\0jpg", 4),
        std::string("\0", 1) + kDigits.substr(1) + ".jpg", " " + kDigits.substr(1) + ".jpg"}) {
    INFO(other);
    CHECK_FALSE(is_sample_picture_name(other));
  }
}

TEST_CASE("a picture that a crash tore is seen to be torn") {
  const std::string whole = "\xFF\xD8\xFF\xE0 pixels \xFF\xD9";
  CHECK(is_whole_sample_picture(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(is_whole_sample_picture(whole.substr(0, size)));
  }
  CHECK_FALSE(is_whole_sample_picture(std::string(whole.size(), '\0')));
}

TEST_CASE("a scored sample tells its pictures, and says nothing where it has none") {
  Scored scored{"1", "docvqa_val", 3, "{}", "f", {kDigits + ".jpg", kDigits + ".jpg"}};
  const auto again = decode(encode(scored));
  REQUIRE(again.has_value());
  CHECK(std::get<Scored>(*again) == scored);

  scored.pictures.clear();
  CHECK(encode(scored).find("pictures") == std::string::npos);
  CHECK(std::get<Scored>(*decode(encode(scored))) == scored);
}

TEST_CASE("names that are none, or too many of them, are a broken line") {
  for (const std::string& name : {std::string("../../etc/passwd"), kDigits, std::string()}) {
    const Scored scored{"1", "docvqa_val", 3, "{}", "f", {name}};
    const auto read = decode(encode(scored));
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == ErrorCode::kCorruption);
  }
  Scored many{"1", "docvqa_val", 3, "{}", "f", {}};
  many.pictures.assign(kMostSamplePictures, kDigits + ".jpg");
  CHECK(decode(encode(many)).has_value());
  many.pictures.push_back(kDigits + ".jpg");
  CHECK_FALSE(decode(encode(many)).has_value());
}
