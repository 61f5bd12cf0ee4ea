#include "store/checkpoint/tied_heads.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>
#include <vector>

#include "store/checkpoint/tied_names.h"

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

using Texts = std::vector<std::string>;

/// As "name <- source".
Texts missing(std::string_view config_text, const std::vector<std::string_view>& names) {
  const TieConfig config = parse(config_text);
  Texts found;
  for (const TiedName& tie : TiedHeads(config, names).missing())
    found.push_back(tie.name + " <- " + std::string(names[tie.source]));
  return found;
}

constexpr std::string_view kTied = R"({"tie_word_embeddings":true})";
constexpr std::string_view kBert = R"({"architectures":["BertForMaskedLM"]})";
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
}

TEST_CASE("a class of somebody's own is of its kind") {
  constexpr std::string_view kMine =
      R"({"architectures":["MyQwen"],"model_type":"qwen2","tie_word_embeddings":true})";
  CHECK(tie(kMine, {"model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kGivenUp);
  CHECK(tie(kMine, {"model.embed_tokens.weight", "mtp.lm_head.weight"}) == HeadTie::kNone);
  CHECK(tie(R"({"model_type":"biogpt"})", {"biogpt.embed_tokens.weight", "lm_head.weight"}) ==
        HeadTie::kNone);
  CHECK(tie(R"({"model_type":"biogpt"})",
            {"biogpt.embed_tokens.weight", "output_projection.weight"}) == HeadTie::kGivenUp);
  CHECK(tie(R"({"model_type":"bert"})",
            {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias",
             "cls.predictions.decoder.weight"}) == HeadTie::kGivenUp);
}

TEST_CASE("a model within the model is of its part's kind") {
  constexpr std::string_view kPair =
      R"({"decoder":{"model_type":"gpt2","tie_word_embeddings":true},"encoder":{}})";
  CHECK(tie(kPair, {"decoder.transformer.wte.weight", "decoder.lm_head.weight"}) ==
        HeadTie::kGivenUp);
  CHECK(tie(kPair, {"decoder.transformer.wte.weight", "lm_head.weight"}) == HeadTie::kNone);
  CHECK(tie(kPair, {"decoder.model.embed_tokens.weight", "lm_head.weight",
                    "decoder.other.lm_head.weight"}) == HeadTie::kNone);
  constexpr std::string_view kInternVl =
      R"({"model_type":"internvl_chat","llm_config":{"model_type":"qwen2","tie_word_embeddings":true}})";
  CHECK(tie(kInternVl, {"language_model.model.embed_tokens.weight",
                        "language_model.lm_head.weight"}) == HeadTie::kGivenUp);
}

TEST_CASE("what was left over of a model within a model is none of its heads") {
  CHECK(tie(R"({"architectures":["MambaForCausalLM"],"model_type":"mamba"})",
            {"backbone.embeddings.weight", "language_model.lm_head.weight"}) == HeadTie::kNone);
}

TEST_CASE("of a model that nobody knows the tie is kept, and told where names say what it is") {
  for (const auto& [embedding, head] :
       {std::pair("model.embed_tokens.weight", "lm_head.weight"),
        std::pair("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        std::pair("model.embeddings.tok_embeddings.weight", "decoder.weight")}) {
    INFO(head);
    CHECK(tie(kTied, {embedding, head}) == HeadTie::kKept);
    CHECK(tie("{}", {embedding, head}) == HeadTie::kKept);
    CHECK(tie(R"({"tie_word_embeddings":false})", {embedding, head}) == HeadTie::kNone);
  }
  for (const std::string_view name :
       {"mtp.lm_head.weight", "output.weight", "decoder.weight", "value.embed_out.weight",
        "model.predictions.decoder.weight"}) {
    INFO(name);
    CHECK(tie(kTied, {"model.embed_tokens.weight", name}) == HeadTie::kNone);
  }
}

TEST_CASE("a head beside which its embedding is not may be the tied weight itself") {
  CHECK(tie(kQwen, {"lm_head.weight"}) == HeadTie::kKept);
  CHECK(tie(kQwen, {"other.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kKept);
  CHECK(tie(R"({"architectures":["LukeForMaskedLM"]})",
            {"luke.entity_embeddings.entity_embeddings.weight", "lm_head.decoder.weight"}) ==
        HeadTie::kKept);
  CHECK(tie(R"({"architectures":["MarianMTModel"]})",
            {"model.decoder.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kGivenUp);
  // By another name that it has had.
  CHECK(tie(R"({"architectures":["Gemma3ForConditionalGeneration"]})",
            {"language_model.model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kGivenUp);
}

TEST_CASE("of a class of somebody's own it is not known whether it has its kind's other heads") {
  constexpr std::string_view kLuke = R"({"architectures":["Mine"],"model_type":"luke"})";
  CHECK(tie(kLuke, {"luke.embeddings.word_embeddings.weight",
                    "luke.entity_embeddings.entity_embeddings.weight", "lm_head.decoder.weight"}) ==
        HeadTie::kKept);
  CHECK(tie(kLuke, {"luke.embeddings.word_embeddings.weight",
                    "luke.entity_embeddings.entity_embeddings.weight",
                    "entity_predictions.decoder.weight", "lm_head.decoder.weight"}) ==
        HeadTie::kGivenUp);
}

TEST_CASE("what the flag does besides is kept") {
  CHECK(tie(R"({"model_type":"zamba2","tie_word_embeddings":true})",
            {"model.embed_tokens.weight", "lm_head.weight"}) == HeadTie::kKept);
  CHECK(tie(R"({"architectures":["BarkFineModel"],"tie_word_embeddings":true})",
            {"input_embeds_layers.1.weight", "lm_heads.0.weight"}) == HeadTie::kNone);
}

TEST_CASE("what a tie filled is told by the class and the names of the files") {
  CHECK(missing(kBert, {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias",
                        "cls.predictions.decoder.weight"}) ==
        Texts{"cls.predictions.decoder.bias <- cls.predictions.bias"});
  CHECK(missing(kBert, {"cls.predictions.bias", "cls.predictions.decoder.bias"}).empty());
  CHECK(missing(R"({"architectures":["RobertaForMaskedLM"]})",
                {"lm_head.decoder.bias", "lm_head.decoder.weight",
                 "roberta.embeddings.word_embeddings.weight"}) ==
        Texts{"lm_head.bias <- lm_head.decoder.bias"});
  CHECK(missing(R"({"architectures":["EsmForMaskedLM"]})",
                {"esm.embeddings.word_embeddings.weight", "lm_head.bias", "lm_head.decoder.weight"})
            .empty());
  CHECK(missing(R"({"architectures":["BartForConditionalGeneration"]})",
                {"lm_head.weight", "model.decoder.layers.0.fc1.weight",
                 "model.encoder.embed_tokens.weight", "model.shared.weight"}) ==
        Texts{"model.decoder.embed_tokens.weight <- model.shared.weight"});
  // From whichever name is there.
  CHECK(missing(R"({"architectures":["BartForConditionalGeneration"]})",
                {"lm_head.weight", "model.decoder.embed_tokens.weight"}) ==
        Texts{"model.encoder.embed_tokens.weight <- model.decoder.embed_tokens.weight",
              "model.shared.weight <- model.decoder.embed_tokens.weight"});
  CHECK(
      missing(R"({"architectures":["LukeForMaskedLM"]})", {"entity_predictions.decoder.weight"}) ==
      Texts{"luke.entity_embeddings.entity_embeddings.weight <- "
            "entity_predictions.decoder.weight"});
  // Marian's encoder and decoder may have one each.
  CHECK(missing(R"({"architectures":["MarianMTModel"]})",
                {"lm_head.weight", "model.decoder.embed_tokens.weight",
                 "model.encoder.embed_tokens.weight"})
            .empty());
  // Not under each name that it has had.
  for (const std::string_view embedding :
       {"model.language_model.embed_tokens.weight", "language_model.model.embed_tokens.weight"}) {
    CHECK(missing(R"({"architectures":["Gemma3ForConditionalGeneration"]})",
                  {embedding, "lm_head.weight"})
              .empty());
  }
  for (const std::string_view embedding :
       {"model.language_model.embed_tokens.weight", "model.embed_tokens.weight"}) {
    CHECK(missing(R"({"architectures":["Qwen2_5_VLForConditionalGeneration"]})",
                  {embedding, "lm_head.weight"})
              .empty());
  }
  // A class of somebody's own may have no encoder.
  CHECK(missing(R"({"architectures":["Mine"],"model_type":"prophetnet"})",
                {"prophetnet.decoder.x", "prophetnet.word_embeddings.weight"}) ==
        Texts{"prophetnet.decoder.word_embeddings.weight <- prophetnet.word_embeddings.weight"});
  CHECK(missing(R"({"architectures":["LukeForMaskedLM"]})",
                {"luke.entity_embeddings.entity_embeddings.weight"}) ==
        Texts{"entity_predictions.decoder.weight <- "
              "luke.entity_embeddings.entity_embeddings.weight"});
  CHECK(missing(R"({"decoder":{"model_type":"bert"}})",
                {"decoder.cls.predictions.bias", "decoder.cls.predictions.decoder.weight"}) ==
        Texts{"decoder.cls.predictions.decoder.bias <- decoder.cls.predictions.bias"});
  CHECK(missing(R"({"model_type":"my_translator"})",
                {"shared.weight", "encoder.x", "decoder.x", "lm_head.weight"})
            .empty());
}

TEST_CASE("the head and the embedding of each class that is known are looked for") {
  for (const ClassTies& listed : known_ties()) {
    for (const KnownTie& tie : listed.ties) {
      if (!tie.is_head) continue;
      INFO(listed.architecture << ": " << tie.one << ", " << tie.other);
      CHECK(may_be_output_head(tie.one));
      CHECK(may_be_tied_embedding(tie.other));
    }
  }
}
