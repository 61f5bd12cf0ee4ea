// The tokenizer's limits and refusals. Its ids are compared with Hugging Face's tokenizers in
// tests/parity/text.
#include "evaluator/text/tokenizer.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "evaluator/text/tokenizer_config.h"
#include "tests/unit/text/tokenizer_file.h"

using Catch::Matchers::ContainsSubstring;
using evalcar::ErrorCode;
using evalcar::test::check_refused;
using evalcar::test::file_of;
using evalcar::test::kByteLevel;
using evalcar::test::parse;
using evalcar::test::Parts;
using evalcar::text::Tokenizer;
using evalcar::text::TokenizerConfig;

namespace {

std::string split_pre_tokenizer(const std::string& json_pattern) {
  return R"({"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","pattern":{"Regex":)" +
         json_pattern + "}}," + kByteLevel + "]}";
}

}  // namespace

TEST_CASE("a small tokenizer merges, cuts special tokens out and decodes") {
  TokenizerConfig config;
  config.named_tokens["eos_token"] = "<end>";
  const auto tokenizer = Tokenizer::parse(file_of({}), config);
  REQUIRE(tokenizer.has_value());

  const auto ids = tokenizer->encode("ab ba<end>");
  REQUIRE(ids.has_value());
  CHECK(*ids == std::vector<std::int32_t>{2, 3, 1, 0, 4});
  CHECK(tokenizer->decode(*ids, false) == "ab ba<end>");
  CHECK(tokenizer->decode(*ids, true) == "ab ba");
  CHECK(tokenizer->eos_id() == 4);
  CHECK_FALSE(tokenizer->pad_id().has_value());
  CHECK(tokenizer->size() == 5);
  CHECK(tokenizer->is_special(4));
}

TEST_CASE("a folder without tokenizer.json says what writes one") {
  const evalcar::RealFileSystem files;

  const auto tokenizer = Tokenizer::load(files, "/no/such/folder");

  REQUIRE_FALSE(tokenizer.has_value());
  CHECK(tokenizer.error().code == ErrorCode::kNotFound);
  CHECK_THAT(tokenizer.error().message, ContainsSubstring("/no/such/folder/tokenizer.json") &&
                                            ContainsSubstring("save_pretrained"));
}

TEST_CASE("components of other tokenizers are refused by name") {
  Parts parts;
  parts.normalizer = R"({"type":"Precompiled"})";
  check_refused(parts, ErrorCode::kUnsupported, "\"Precompiled\"");
  parts = {};
  parts.pre_tokenizer = R"({"type":"BertPreTokenizer"})";
  check_refused(parts, ErrorCode::kUnsupported, "\"BertPreTokenizer\"");
  parts = {};
  parts.pre_tokenizer = "null";
  check_refused(parts, ErrorCode::kUnsupported, "ByteLevel");
  parts = {};
  parts.decoder = R"({"type":"WordPiece"})";
  check_refused(parts, ErrorCode::kUnsupported, "decoder");
  parts = {};
  parts.model_options = R"("byte_fallback":true,)";
  check_refused(parts, ErrorCode::kUnsupported, "byte_fallback");
}

TEST_CASE("a vocabulary that contradicts itself is corrupt") {
  Parts parts;
  parts.vocabulary = R"({"a":-1})";
  check_refused(parts, ErrorCode::kCorruption, "\"a\" is -1");
  parts.vocabulary = R"({"a":99999999999})";
  check_refused(parts, ErrorCode::kCorruption, "99999999999");
  parts.vocabulary = R"({"a":1.5})";
  check_refused(parts, ErrorCode::kCorruption, "1.5");
  parts = {};
  parts.merges = R"(["a c"])";
  check_refused(parts, ErrorCode::kCorruption, "merges[0]: \"c\"");
  parts.merges = R"([["b","a"]])";
  check_refused(parts, ErrorCode::kCorruption, "\"ba\" is not in the vocabulary");
  parts.merges = R"(["abc"])";
  check_refused(parts, ErrorCode::kCorruption, "one space");
  parts.merges = R"([7])";
  check_refused(parts, ErrorCode::kCorruption, "merges[0]");
}

TEST_CASE("every truncation of a tokenizer.json is an error and none crashes") {
  const std::string file = file_of({});
  for (std::size_t size = 0; size < file.size(); ++size) {
    const auto tokenizer = Tokenizer::parse(file.substr(0, size), TokenizerConfig{});
    CHECK_FALSE(tokenizer.has_value());
  }
}

TEST_CASE("deeply nested components are refused") {
  std::string nested = kByteLevel;
  for (int i = 0; i < 1000; ++i) nested = R"({"type":"Sequence","pretokenizers":[)" + nested + "]}";
  Parts parts;
  parts.pre_tokenizer = nested;
  check_refused(parts, ErrorCode::kCorruption, "nested too deep");
  parts.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)" + std::string(kByteLevel) + "]}";
  for (int i = 0; i < 10; ++i)
    parts.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)" + parts.pre_tokenizer + "]}";
  check_refused(parts, ErrorCode::kCorruption, "nested too deep");
  const auto brackets = Tokenizer::parse(std::string(1'000'000, '['), TokenizerConfig{});
  CHECK_FALSE(brackets.has_value());
}

TEST_CASE("JSON nested a million levels deep is a named error wherever it stands") {
  const std::string nest = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  Parts parts;
  parts.vocabulary = R"({"a":)" + nest + "}";
  check_refused(parts, ErrorCode::kCorruption, "more than 32 levels");
  parts = {};
  parts.normalizer = nest;
  check_refused(parts, ErrorCode::kCorruption, "more than 32 levels");
  parts = {};
  parts.vocabulary = R"({"a":0,"b":1,"ab":2,"Ġ":3,"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[":4})";
  CHECK(parse(parts).has_value());  // brackets in a text are no nesting
}

TEST_CASE("a template puts its special tokens around every text") {
  Parts parts;
  parts.post_processor =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
          "single":[{"SpecialToken":{"id":"<end>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                    {"SpecialToken":{"id":"x","type_id":0}}],"pair":[],
          "special_tokens":{"<end>":{"id":"<end>","ids":[4],"tokens":["<end>"]},
                            "x":{"id":"x","ids":[1,0],"tokens":["b","a"]}}}]})";
  const auto tokenizer = parse(parts);
  REQUIRE(tokenizer.has_value());
  CHECK(tokenizer->encode("ab").value() == std::vector<std::int32_t>{4, 2, 1, 0});
  CHECK(tokenizer->encode("").value() == std::vector<std::int32_t>{4, 1, 0});
}

TEST_CASE("other post-processors are refused by name") {
  const auto with = [](const std::string& post_processor) {
    Parts parts;
    parts.post_processor = post_processor;
    return parts;
  };
  const auto of_single = [&](const std::string& single, const std::string& ids) {
    return with(R"({"type":"TemplateProcessing","single":[)" + single +
                R"(],"special_tokens":{"<end>":{"ids":)" + ids + "}}}");
  };
  const std::string text = R"({"Sequence":{"id":"A"}})", end = R"({"SpecialToken":{"id":"<end>"}})";
  const std::string empty = R"({"type":"TemplateProcessing","single":[)" + text + "]}";
  REQUIRE(parse(of_single(end + "," + text, "[4]")).has_value());
  check_refused(with(R"({"type":"BertProcessing"})"), ErrorCode::kUnsupported,
                "\"BertProcessing\"");
  check_refused(with("7"), ErrorCode::kUnsupported, "post_processor");
  check_refused(with(R"({"type":"Sequence","processors":[)" + empty + "," + empty + "]}"),
                ErrorCode::kUnsupported, "two TemplateProcessing");
  check_refused(of_single(text + "," + text, "[4]"), ErrorCode::kUnsupported, "not one text");
  check_refused(of_single(end, "[4]"), ErrorCode::kUnsupported, "not one text");
  check_refused(of_single(end + "," + text, "[5]"), ErrorCode::kCorruption, "id 5 is no token's");
  check_refused(of_single(end + "," + text, "[-1]"), ErrorCode::kCorruption, "no id");
  check_refused(of_single(R"({"SpecialToken":{"id":"y"}})", "[4]"), ErrorCode::kCorruption,
                "\"y\"");
}

TEST_CASE("a pattern that backtracks without end is stopped by the step limit") {
  Parts parts;
  parts.pre_tokenizer = split_pre_tokenizer(R"("(a|aa)+(?<!a)$|(a*)*(?=b)c")");
  const auto tokenizer = parse(parts);
  REQUIRE(tokenizer.has_value());

  const auto ids = tokenizer->encode(std::string(4000, 'a') + "bbb");

  REQUIRE_FALSE(ids.has_value());
  CHECK(ids.error().code == ErrorCode::kUnsupported);
  CHECK_THAT(ids.error().message, ContainsSubstring("step limit"));
}

TEST_CASE("patterns that the engines read differently are refused") {
  for (const std::string pattern :
       {R"("[a&&b]")", R"("[a[bc]]")", R"("\\h+")", R"("\\X")", R"("(?m)a.b")", R"("\\p{Han}")",
        R"("[[:alpha:]]")", R"("(*ANYCRLF)a")", R"("a\\")", R"("[a")", R"("(a")", R"("\\u0041")"}) {
    Parts parts;
    parts.pre_tokenizer = split_pre_tokenizer(pattern);
    INFO(pattern);
    check_refused(parts, ErrorCode::kUnsupported, "regular expression");
  }
}

TEST_CASE("invalid UTF-8 becomes U+FFFD by maximal subparts") {
  Parts parts;
  parts.vocabulary = R"({"ï":0,"¿":1,"½":2,"a":3})";
  parts.merges = "[]";
  const auto tokenizer = parse(parts);
  REQUIRE(tokenizer.has_value());

  // A lone continuation; a surrogate (three subparts); four bytes cut after the third (one).
  const auto ids = tokenizer->encode(
      "\x80"
      "a"
      "\xED\xA0\x80"
      "a"
      "\xF0\x9F\x92"
      "a");

  REQUIRE(ids.has_value());
  CHECK(*ids == std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3});
}

TEST_CASE("a very long piece is merged in time that grows as n log n") {
  const auto tokenizer = parse({});
  REQUIRE(tokenizer.has_value());
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "ab";

  const auto ids = tokenizer->encode(text);

  REQUIRE(ids.has_value());
  CHECK(ids->size() == 500'000);
}

TEST_CASE("ids that no token has are left out of the text") {
  const auto tokenizer = parse({});
  REQUIRE(tokenizer.has_value());
  CHECK(tokenizer->decode(std::vector<std::int32_t>{0, -1, 77, 1}, false) == "ab");
}
