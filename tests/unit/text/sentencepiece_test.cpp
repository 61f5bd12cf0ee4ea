// Tokenizers of SentencePiece's kind: what is refused, and what is bounded. Their ids are compared
// with Hugging Face's tokenizers in tests/parity/text.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/text/tokenizer_file.h"

using evalcar::ErrorCode;
using evalcar::test::check_refused;
using evalcar::test::kByteLevel;
using evalcar::test::parse;
using evalcar::test::Parts;

namespace {

/// Of SentencePiece's kind: the space is a character, and some bytes have names.
Parts characters() {
  Parts parts;
  parts.vocabulary = R"({"<unk>":0,"a":1,"▁":2,"▁a":3,"<0xC3>":4,"<0xA9>":5,"<0x0A>":6})";
  parts.merges = R"([["▁","a"]])";
  parts.model_options = R"("byte_fallback":true,"unk_token":"<unk>",)";
  parts.normalizer = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  parts.pre_tokenizer = "null";
  parts.decoder =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
      R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  parts.added = "[]";
  return parts;
}

}  // namespace

TEST_CASE("characters that a vocabulary of SentencePiece lacks are bytes, or unknown") {
  const auto tokenizer = parse(characters());
  REQUIRE(tokenizer.has_value());
  CHECK(tokenizer->encode(" a é\n").value() == std::vector<std::int32_t>{3, 2, 4, 5, 6});
  CHECK(tokenizer->encode("éb").value() == std::vector<std::int32_t>{4, 5, 0});
  CHECK(tokenizer->decode(std::vector<std::int32_t>{3, 2, 4, 5, 6}, false) == "a é\n");
  CHECK(tokenizer->decode(std::vector<std::int32_t>{4, 1, 5}, false) == "\uFFFDa\uFFFD");
}

TEST_CASE("what a tokenizer of SentencePiece's kind says wrongly is refused by name") {
  Parts parts = characters();
  parts.decoder = R"({"type":"ByteLevel"})";
  check_refused(parts, ErrorCode::kUnsupported, "ByteLevel is in the decoder alone");
  parts = characters();
  parts.pre_tokenizer = kByteLevel;
  check_refused(parts, ErrorCode::kUnsupported, "ByteLevel is in the pre_tokenizer alone");
  parts.decoder = R"({"type":"ByteLevel"})";
  check_refused(parts, ErrorCode::kUnsupported, "byte_fallback beside ByteLevel");

  parts = characters();
  for (const char* said :
       {R"("pattern":{"String":""},"content":"")", R"("pattern":{"Regex":""},"content":"")",
        R"("pattern":{"Regex":"$"},"content":"x")",
        R"("pattern":{"Regex":"(?=a)|ab*?"},"content":"x")",
        R"("pattern":{"Regex":"\\bx"},"content":"")",
        R"("pattern":{"Regex":"[[:alpha:]]"},"content":"")"}) {
    parts.normalizer = std::string(R"({"type":"Replace",)") + said + "}";
    check_refused(parts, ErrorCode::kUnsupported, "Replace");
  }
  for (const char* said :
       {R"("content":"x")", R"("pattern":{"String":"x"})", R"("pattern":{"Glob":"x"},"content":"")",
        R"("pattern":7,"content":"")", R"("pattern":{"String":"x","Regex":"x"},"content":"")"}) {
    parts.normalizer = std::string(R"({"type":"Replace",)") + said + "}";
    check_refused(parts, ErrorCode::kCorruption, "Replace");
  }
  parts.normalizer = R"({"type":"Prepend"})";
  check_refused(parts, ErrorCode::kCorruption, "Prepend");
  parts.normalizer = R"({"type":"Prepend","prepend":""})";
  check_refused(parts, ErrorCode::kUnsupported, "Prepend");

  parts = characters();
  for (const char* said :
       {R"("replacement":"")", R"("replacement":"ab")", R"("prepend_scheme":"first")",
        R"("replacement":"▁","prepend_scheme":"last")",
        R"("replacement":"▁","prepend_scheme":"first","add_prefix_space":false)",
        R"("replacement":"▁","prepend_scheme":null)", R"("replacement":"▁","split":"x")",
        R"("replacement":"▁","add_prefix_space":0)"}) {
    parts.pre_tokenizer = std::string(R"({"type":"Metaspace",)") + said + "}";
    check_refused(parts, ErrorCode::kCorruption, "pre_tokenizer");
  }
  parts.pre_tokenizer = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"})";
  check_refused(parts, ErrorCode::kUnsupported, "\"first\" after a normalizer");
  const std::string metaspace = R"({"type":"Metaspace","replacement":"▁"})";
  parts.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[)" + metaspace + "," + metaspace + "]}";
  check_refused(parts, ErrorCode::kUnsupported, "two Metaspace");

  parts = characters();
  parts.decoder = R"({"type":"Replace","pattern":{"Regex":"x"},"content":""})";
  check_refused(parts, ErrorCode::kUnsupported, "regular expression");
  for (const char* said :
       {R"("content":"ab","start":1,"stop":0)", R"("content":" ","stop":0)",
        R"("content":" ","start":-1,"stop":0)", R"("content":" ","start":1,"stop":"1")"}) {
    parts.decoder = std::string(R"({"type":"Strip",)") + said + "}";
    check_refused(parts, ErrorCode::kCorruption, "Strip");
  }
  parts.decoder = R"({"type":"Sequence"})";
  check_refused(parts, ErrorCode::kCorruption, "decoders");
  parts.decoder = R"({"type":"Fuse"})";
  for (int i = 0; i < 12; ++i)
    parts.decoder = R"({"type":"Sequence","decoders":[)" + parts.decoder + "]}";
  check_refused(parts, ErrorCode::kCorruption, "nested too deep");
}

TEST_CASE("what would make a short text very long is refused where the file is read") {
  const auto repeated = [](const std::string& step, int times) {
    std::string list = step;
    for (int i = 1; i < times; ++i) list += "," + step;
    return list;
  };
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  Parts parts = characters();
  parts.normalizer = R"({"type":"Sequence","normalizers":[)" + repeated(twice, 4) + "]}";
  const auto most = parse(parts);
  REQUIRE(most.has_value());
  CHECK(most->encode("a")->size() == 16);
  const auto longest = most->encode(std::string((std::size_t{1} << 20U) + 1, 'a'));
  REQUIRE_FALSE(longest.has_value());
  CHECK(longest.error().code == ErrorCode::kInvalidArgument);

  parts.normalizer = R"({"type":"Sequence","normalizers":[)" + repeated(twice, 5) + "]}";
  check_refused(parts, ErrorCode::kUnsupported, "16 times as long");
  parts.normalizer =
      R"({"type":"Replace","pattern":{"Regex":"a"},"content":")" + std::string(17, 'a') + "\"}";
  check_refused(parts, ErrorCode::kUnsupported, "16 times as long");
  const std::string prefix = R"({"type":"Prepend","prepend":"abcd"})";
  parts.normalizer = R"({"type":"Sequence","normalizers":[)" + repeated(prefix, 5) + "]}";
  check_refused(parts, ErrorCode::kUnsupported, "Prepend");

  parts = characters();
  parts.decoder = R"({"type":"Sequence","decoders":[)" + repeated(twice, 5) + "]}";
  check_refused(parts, ErrorCode::kUnsupported, "16 times as long");
}

TEST_CASE("added tokens that normalized text cannot tell apart are refused") {
  Parts parts = characters();
  const auto added = [](const std::string& content) {
    return R"({"content":")" + content + R"(","normalized":true})";
  };
  parts.normalizer = R"({"type":"Replace","pattern":{"String":"x"},"content":"y"})";
  parts.added = "[" + added("ax") + "," + added("ay") + "]";
  check_refused(parts, ErrorCode::kUnsupported, "\"ay\"");
  parts.normalizer = R"({"type":"Replace","pattern":{"String":"ax"},"content":""})";
  parts.added = "[" + added("ax") + "]";
  check_refused(parts, ErrorCode::kUnsupported, "as nothing would");
  parts.added = "[" + added(std::string(5000, 'x')) + "]";
  check_refused(parts, ErrorCode::kCorruption, "longer than 4096");
}

TEST_CASE("what is unknown without a token for it is corrupt, unless bytes stand for all") {
  Parts parts = characters();
  parts.model_options = R"("byte_fallback":true,"unk_token":"<none>",)";
  check_refused(parts, ErrorCode::kCorruption, "<none>");  // some bytes are missing
  parts.model_options = R"("byte_fallback":"true","unk_token":"<unk>",)";
  check_refused(parts, ErrorCode::kCorruption, "byte_fallback");
}
