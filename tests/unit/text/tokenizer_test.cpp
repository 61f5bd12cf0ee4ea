// The tokenizer's limits and refusals. Its ids are compared with Hugging Face's tokenizers in
// tests/parity/text.
#include "evaluator/text/tokenizer.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "evaluator/text/tokenizer_config.h"

using Catch::Matchers::ContainsSubstring;
using evalcar::ErrorCode;
using evalcar::text::Tokenizer;
using evalcar::text::TokenizerConfig;

namespace {

constexpr const char* kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
constexpr const char* kVocabulary = R"({"a":0,"b":1,"ab":2,"Ġ":3})";

struct Parts {
  std::string vocabulary = kVocabulary;
  std::string merges = R"(["a b"])";
  std::string pre_tokenizer = kByteLevel;
  std::string normalizer = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string added = R"([{"id":4,"content":"<end>","special":true}])";
  std::string model_options;
  std::string post_processor = "null";
};

std::string file_of(const Parts& parts) {
  return R"({"added_tokens":)" + parts.added + R"(,"normalizer":)" + parts.normalizer +
         R"(,"pre_tokenizer":)" + parts.pre_tokenizer + R"(,"decoder":)" + parts.decoder +
         R"(,"post_processor":)" + parts.post_processor + R"(,"model":{"type":"BPE",)" +
         parts.model_options + R"("vocab":)" + parts.vocabulary + R"(,"merges":)" + parts.merges +
         "}}";
}

evalcar::Result<Tokenizer> parse(const Parts& parts) {
  return Tokenizer::parse(file_of(parts), TokenizerConfig{});
}

std::string split_pre_tokenizer(const std::string& json_pattern) {
  return R"({"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","pattern":{"Regex":)" +
         json_pattern + "}}," + kByteLevel + "]}";
}

void check_refused(const Parts& parts, ErrorCode code, const std::string& words) {
  const auto tokenizer = parse(parts);
  REQUIRE_FALSE(tokenizer.has_value());
  CHECK(tokenizer.error().code == code);
  CHECK_THAT(tokenizer.error().message, ContainsSubstring(words));
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
