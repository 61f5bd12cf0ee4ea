// A small tokenizer.json, of which a test changes a part.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "evaluator/text/tokenizer.h"
#include "evaluator/text/tokenizer_config.h"

namespace evalcar::test {

inline constexpr const char* kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
inline constexpr const char* kVocabulary = R"({"a":0,"b":1,"ab":2,"Ġ":3})";

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

inline std::string file_of(const Parts& parts) {
  return R"({"added_tokens":)" + parts.added + R"(,"normalizer":)" + parts.normalizer +
         R"(,"pre_tokenizer":)" + parts.pre_tokenizer + R"(,"decoder":)" + parts.decoder +
         R"(,"post_processor":)" + parts.post_processor + R"(,"model":{"type":"BPE",)" +
         parts.model_options + R"("vocab":)" + parts.vocabulary + R"(,"merges":)" + parts.merges +
         "}}";
}

inline Result<text::Tokenizer> parse(const Parts& parts) {
  return text::Tokenizer::parse(file_of(parts), text::TokenizerConfig{});
}

inline void check_refused(const Parts& parts, ErrorCode code, const std::string& words) {
  const auto tokenizer = parse(parts);
  REQUIRE_FALSE(tokenizer.has_value());
  CHECK(tokenizer.error().code == code);
  CHECK_THAT(tokenizer.error().message, Catch::Matchers::ContainsSubstring(words));
}

}  // namespace evalcar::test
