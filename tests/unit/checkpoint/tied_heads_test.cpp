#include "store/checkpoint/tied_heads.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace evalcar::checkpoint;

namespace {

TieConfig parse(std::string_view text) {
  auto config = TieConfig::parse(text, "config.json");
  REQUIRE(config.has_value());
  return std::move(config).value();
}

/// Of the last name.
HeadTie tie(std::string_view config_text, const std::vector<std::string_view>& names) {
  const TieConfig config = parse(config_text);
  return TiedHeads(config, names).tie_of(names.back());
}

constexpr std::string_view kTied = R"({"tie_word_embeddings":true})";
constexpr std::string_view kQwen =
    R"({"architectures":["Qwen2ForCausalLM"],"tie_word_embeddings":true})";

}  // namespace

TEST_CASE("where the class is known its head is the one that it calls so") {
  CHECK(tie(kQwen, {"model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kGivenUp);
  for (const std::string_view name :
       {"mtp.lm_head.weight", "output.weight", "decoder.weight", "proj_out.weight",
        "lm_loss.weight", "model.predictions.decoder.weight"}) {
    INFO(name);
    CHECK(tie(kQwen, {"model.embed_tokens.weight", name}) == HeadTie::kNone);
    CHECK(tie(kQwen, {"model.embed_tokens.weight", "lm_head.weight", name}) == HeadTie::kNone);
  }
  CHECK(tie(R"({"architectures":["Qwen2ForSequenceClassification"]})",
            {"model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kNone);
}

TEST_CASE("where it is not known, names that belong together tell it") {
  CHECK(tie(kTied, {"model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kGivenUp);
  CHECK(tie("{}", {"model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kGivenUp);
  CHECK(tie(R"({"tie_word_embeddings":false})", {"model.embed_tokens.weight", "lm_head.weight"}) ==
        HeadTie::kNone);
  CHECK(tie(kTied, {"tok_embeddings.weight", "output.weight"}) == HeadTie::kGivenUp);
  CHECK(tie(kTied, {"model.embeddings.tok_embeddings.weight", "decoder.weight"}) ==
        HeadTie::kGivenUp);
  CHECK(tie(kTied, {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias",
                    "cls.predictions.decoder.weight"}) == HeadTie::kGivenUp);
  for (const std::string_view name :
       {"mtp.lm_head.weight", "output.weight", "decoder.weight", "value.embed_out.weight",
        "model.predictions.decoder.weight"}) {
    INFO(name);
    CHECK(tie(kTied, {"model.embed_tokens.weight", name}) == HeadTie::kNone);
  }
}

TEST_CASE("lm_head counts where its embedding lies beside it, and the kind of model has one") {
  CHECK(tie(kTied, {"language_model.model.embed_tokens.weight", "language_model.lm_head.weight"}) ==
        HeadTie::kGivenUp);
  CHECK(tie(kTied, {"model.language_model.embed_tokens.weight", "lm_head.weight"}) ==
        HeadTie::kGivenUp);
  CHECK(tie(kTied, {"language_model.model.decoder.embed_tokens.weight", "lm_head.weight"}) ==
        HeadTie::kNone);
  CHECK(tie(kTied, {"backbone.embeddings.weight", "language_model.lm_head.weight"}) ==
        HeadTie::kNone);
  constexpr std::string_view kPair = R"({"encoder":{},"decoder":{"tie_word_embeddings":true}})";
  CHECK(tie(kPair, {"decoder.transformer.wte.weight", "lm_head.weight"}) == HeadTie::kNone);
  CHECK(tie(kPair, {"decoder.transformer.wte.weight", "decoder.lm_head.weight"}) ==
        HeadTie::kGivenUp);
  CHECK(tie(R"({"model_type":"biogpt"})", {"biogpt.embed_tokens.weight", "lm_head.weight"}) ==
        HeadTie::kNone);
  CHECK(tie(R"({"model_type":"biogpt"})",
            {"biogpt.embed_tokens.weight", "output_projection.weight"}) == HeadTie::kGivenUp);
}

TEST_CASE("beside a head that the tie fills another one is somebody's own") {
  CHECK(tie(kTied, {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias",
                    "lm_head.weight"}) == HeadTie::kNone);
  CHECK(tie(kTied, {"x.word_embeddings.weight", "lm_head.decoder.bias", "lm_head.weight"}) ==
        HeadTie::kGivenUp);  // its bias, by another class's name
}

TEST_CASE("what the flag does besides is kept") {
  CHECK(tie(R"({"model_type":"zamba2","tie_word_embeddings":true})",
            {"model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kKept);
  CHECK(tie(R"({"model_type":"my_zamba"})",
            {"model.embed_tokens.weight", "model.layers.1.shared_transf.x", "lm_head.weight"}) ==
        HeadTie::kKept);
  // Whether a class of somebody's own shares its embedding is not known.
  const std::vector<std::string_view> names = {"shared.weight", "encoder.x", "decoder.x",
                                               "lm_head.weight"};
  for (const bool known : {true, false}) {
    const TieConfig config =
        parse(known ? R"({"model_type":"bart"})" : R"({"model_type":"my_translator"})");
    const TiedHeads ties(config, names);
    CHECK(ties.tie_of("lm_head.weight") == (known ? HeadTie::kGivenUp : HeadTie::kKept));
    CHECK(ties.missing().size() == (known ? 2U : 0U));
  }
}
