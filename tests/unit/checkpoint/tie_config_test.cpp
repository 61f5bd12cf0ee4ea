#include "store/checkpoint/tie_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace evalcar::checkpoint {
namespace {

TieConfig parse(std::string_view text) {
  auto config = TieConfig::parse(text, "config.json");
  REQUIRE(config.has_value());
  return std::move(config).value();
}

/// "thinker_config.text_config=true": the flags that tie the tensor, in order of their parts.
std::vector<std::string> flags(const TieConfig& config, std::string_view tensor) {
  std::vector<std::string> found;
  for (const TieFlag& flag : config.flags_of(tensor).flags) {
    std::string text;
    for (const std::string& key : flag.part) text += (text.empty() ? "" : ".") + key;
    found.push_back(text + "=" + (flag.says ? (*flag.says ? "true" : "false") : "?"));
  }
  std::sort(found.begin(), found.end());
  return found;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a head at the top is tied by the flags of the whole model and of its text") {
  const TieConfig config =
      parse(R"({"architectures":["A","B"],"tie_word_embeddings":false,"vision_config":)"
            R"({"tie_word_embeddings":true},"text_config":{"tie_word_embeddings":true}})");

  CHECK(config.architecture() == "A");
  CHECK(flags(config, "lm_head.weight") == Texts{"=false", "text_config=true"});
  CHECK(flags(config, "model.language_model.embed_tokens.weight") ==
        Texts{"=false", "text_config=true"});
  CHECK(config.flags_of("lm_head.weight").may_tie());
  CHECK(flags(parse("{}"), "lm_head.weight") == Texts{"=?"});
  CHECK(parse("{}").flags_of("lm_head.weight").may_tie());
  CHECK_FALSE(parse(R"({"tie_word_embeddings":false})").flags_of("lm_head.weight").may_tie());
  CHECK(parse(R"({"tie_word_embeddings":null})").flags_of("lm_head.weight").may_tie());
}

TEST_CASE("a head in a part is tied by the flags of that part") {
  const TieConfig omni = parse(
      R"({"thinker_config":{"tie_word_embeddings":false,"text_config":{"tie_word_embeddings":true}},)"
      R"("talker_config":{"tie_word_embeddings":true}})");
  CHECK(flags(omni, "thinker.lm_head.weight") ==
        Texts{"thinker_config.text_config=true", "thinker_config=false"});
  CHECK(flags(omni, "talker.lm_head.weight") == Texts{"talker_config=true"});

  const TieConfig pair =
      parse(R"({"encoder":{"tie_word_embeddings":true},"decoder":{"tie_word_embeddings":false}})");
  CHECK(flags(pair, "decoder.cls.predictions.decoder.weight") == Texts{"decoder=false"});
  CHECK(flags(pair, "encoder.embeddings.word_embeddings.weight") == Texts{"encoder=true"});

  const TieConfig blip =
      parse(R"({"text_config":{"tie_word_embeddings":true},"qformer_config":{}})");
  CHECK(flags(blip, "language_model.lm_head.weight") == Texts{"=?", "text_config=true"});
  CHECK(flags(blip, "text_decoder.cls.predictions.decoder.weight") ==
        Texts{"=?", "text_config=true"});
}

TEST_CASE("where no flag of a head says anything, any that ties may tie it") {
  const TieConfig config =
      parse(R"({"odd_config":{"tie_word_embeddings":true},"vision_config":)"
            R"({"tie_word_embeddings":true},"other":{"tie_word_embeddings":false}})");

  CHECK(flags(config, "head_model.lm_head.weight") == Texts{"=?", "odd_config=true"});
}

TEST_CASE("where the part of a model of text is not found, any that ties may tie its head, too") {
  for (const char* const top : {"true", "false"}) {
    const TieConfig config = parse(R"({"tie_word_embeddings":)" + std::string(top) +
                                   R"(,"llama_config":{"tie_word_embeddings":true}})");
    CHECK(flags(config, "language_model.lm_head.weight") ==
          Texts{"=" + std::string(top), "llama_config=true"});
    CHECK(flags(config, "lm_head.weight") == Texts{"=" + std::string(top)});
    CHECK(config.flags_of("language_model.lm_head.weight").own_name == "lm_head.weight");
  }
  CHECK(parse("{}").flags_of("mtp.lm_head.weight").own_name == "mtp.lm_head.weight");
}

TEST_CASE("a part that is called as a module of the head is none of its parts") {
  const TieConfig config = parse(
      R"({"tie_word_embeddings":true,"decoder":{"model_type":"t5","tie_word_embeddings":true}})");
  CHECK(config.flags_of("cls.predictions.decoder.weight").own_name ==
        "cls.predictions.decoder.weight");
}

TEST_CASE("the flag does more in models of T5's kind") {
  const auto does_more = [](const char* text, const char* tensor) {
    return parse(text).flags_of(tensor).do_more;
  };
  CHECK(does_more(R"({"model_type":"t5"})", "lm_head.weight"));
  CHECK(does_more(R"({"model_type":"x","text_config":{"model_type":"t5"}})",
                  "language_model.lm_head.weight"));
  CHECK_FALSE(does_more(R"({"model_type":"x","text_encoder":{"model_type":"t5"}})",
                        "decoder.lm_head.weight"));
  CHECK_FALSE(does_more(R"({"model_type":"bart"})", "lm_head.weight"));
}

TEST_CASE("LFM2's flag is one, and arrays hold no parts") {
  CHECK(flags(parse(R"({"tie_embedding":true,"tie_word_embeddings":false})"), "lm_head.weight") ==
        Texts{"=true"});
  CHECK(flags(parse(R"({"a":[{"tie_word_embeddings":true}]})"), "lm_head.weight") == Texts{"=?"});
}

TEST_CASE("what can be no part takes no place among the parts") {
  const std::string lengthy(200, 'a');
  for (const std::string& key : {lengthy, std::string("quantization_config")}) {
    std::string many = R"({"tie_word_embeddings":false,")" + key + "\":{";
    for (int i = 0; i < 20'000; ++i) many += '"' + std::to_string(i) + "\":{},";
    const TieConfig config = parse(many + R"("z":{}},"text_config":{"tie_word_embeddings":true}})");

    CHECK(flags(config, "lm_head.weight") == Texts{"=false", "text_config=true"});
    CHECK(flags(config, key + ".lm_head.weight") == Texts{"=false", "text_config=true"});
  }
}

}  // namespace evalcar::checkpoint
