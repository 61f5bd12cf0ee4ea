#include "store/checkpoint/config_edit.h"

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <string>
#include <vector>

using namespace evalcar::checkpoint;

namespace {

std::string edited(std::string_view text, const std::optional<std::string>& dtype,
                   const std::vector<TieFlag>& given_up = {}) {
  const auto result = edit_config(text, "config.json", dtype, given_up);
  REQUIRE(result.has_value());
  return *result;
}

const std::vector<TieFlag> kTop = {{{}, std::nullopt, true}};

}  // namespace

TEST_CASE("a cast sets the dtypes of the model and its parts, and leaves every other byte") {
  CHECK(edited("{ \"torch_dtype\" :\t\"float32\",\n\"dtype\":\"float32\"}", "bfloat16") ==
        "{ \"torch_dtype\" :\t\"bfloat16\",\n\"dtype\":\"bfloat16\"}");
  // A part is called so, or says what model it is, wherever in it that stands.
  CHECK(
      edited(
          R"({"text_config":{"dtype":"a"},"encoder":{"dtype":"a","model_type":"t"},"x":{"dtype":"a"}})",
          "b") ==
      R"({"text_config":{"dtype":"b"},"encoder":{"dtype":"b","model_type":"t"},"x":{"dtype":"a"}})");
  for (const char* const kept : {R"({"quantization_config":{"dtype":"a"}})",
                                 R"({"text_config":{"compression_config":{"dtype":"a"}}})",
                                 R"({"a":[{"dtype":"a","model_type":"t"}]})",
                                 R"({"dtype":null,"torch_dtype":7})", R"({"x":"dtype"})"}) {
    CHECK(edited(kept, "b") == kept);
  }
  CHECK(edited(R"({"dtype":"a\"}","n":NaN,"i":[-Infinity]})", "b") ==
        R"({"dtype":"b","n":NaN,"i":[-Infinity]})");
  CHECK(edited(R"({"dtype":"a"} )", std::nullopt) == R"({"dtype":"a"} )");
}

TEST_CASE("a tie is given up where it is said and, where nothing is, by a key of its own") {
  CHECK(edited(R"({"a": 1, "tie_word_embeddings": true})", std::nullopt, kTop) ==
        R"({"a": 1, "tie_word_embeddings": false})");
  CHECK(edited(R"({"tie_word_embeddings":null})", std::nullopt, kTop) ==
        R"({"tie_word_embeddings":false})");
  CHECK(edited("{}", std::nullopt, kTop) == R"({"tie_word_embeddings": false})");
  CHECK(edited("{\n \"a\": 1}", std::nullopt, kTop) ==
        "{\"tie_word_embeddings\": false, \n \"a\": 1}");
  CHECK(edited(R"({"tie_embedding":true})", std::nullopt, kTop) ==
        R"({"tie_word_embeddings": false, "tie_embedding":false})");
  // A second key of the name would be wrong.
  CHECK(edited(R"({"tie_word_embeddings":[true]})", std::nullopt, kTop) ==
        R"({"tie_word_embeddings":[true]})");

  const std::vector<TieFlag> part = {{{"text_config"}, std::nullopt, false},
                                     {{"thinker", "text"}, true, false}};
  CHECK(edited(R"({"text_config":{},"thinker":{"text":{"tie_word_embeddings":true}}})",
               std::nullopt,
               part) == R"({"text_config":{},"thinker":{"text":{"tie_word_embeddings":false}}})");
  CHECK(edited(R"({"tie_word_embeddings":true,"dtype":"a"})", "b", kTop) ==
        R"({"tie_word_embeddings":false,"dtype":"b"})");
}

TEST_CASE("a tie of a number that Python alone writes is replaced whole") {
  for (const char* const value : {"NaN", "Infinity", "-Infinity", "-1e-7", "\"a\\\"b\"", "null"}) {
    CHECK(edited("{\"tie_word_embeddings\": " + std::string(value) + "}", std::nullopt, kTop) ==
          "{\"tie_word_embeddings\": false}");
  }
}

TEST_CASE("what a method says of many modules hides no dtype of the model's") {
  std::string many = R"({"quantization_config":{)";
  for (int i = 0; i < 10'001; ++i) many += '"' + std::to_string(i) + R"(":{"dtype":"a"},)";
  many += R"("z":0},)";
  CHECK(edited(many + R"("text_config":{"dtype":"a"},"torch_dtype":"a"})", "b") ==
        many + R"("text_config":{"dtype":"b"},"torch_dtype":"b"})");
  many = "{";
  for (int i = 0; i < 10'001; ++i) many += '"' + std::to_string(i) + R"(_config":{"dtype":"a"},)";
  CHECK(edited(many + R"("dtype":"a"})", "b").ends_with(R"(,"dtype":"b"})"));
  const std::string deep(200, '[');
  CHECK(edited(R"({"dtype":"a","x":)" + deep + std::string(200, ']') + "}", "b")
            .starts_with(R"({"dtype":"b")"));
}

TEST_CASE("what is no configuration is not edited") {
  for (const char* const text : {"[]", "7", "{", R"({"a":1,"a":2})", ""}) {
    INFO(text);
    CHECK_FALSE(edit_config(text, "config.json", "b", kTop).has_value());
  }
}
