// Written by tests/fixtures/make_known_ties.py; do not edit.
// clang-format off
#include "store/checkpoint/known_ties.h"

#include <array>

namespace evalcar::checkpoint {
namespace {

constexpr bool kHead = true;
constexpr bool kMore = false;

constexpr std::array<KnownTie, 1> kTies0 = {{
    {kHead, "lm_head.weight", "model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies1 = {{
    {kHead, "lm_head.weight", "model.language_model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies2 = {{
    {kHead, "language_model.lm_head.weight", "language_model.model.embed_tokens.weight"},
    {kHead, "lm_head.weight", "model.language_model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies3 = {{
    {kHead, "lm_head.weight", "model.decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 3> kTies4 = {{
    {kHead, "lm_head.weight", "model.shared.weight"},
    {kMore, "model.decoder.embed_tokens.weight", "model.shared.weight"},
    {kMore, "model.encoder.embed_tokens.weight", "model.shared.weight"}}};
constexpr std::array<KnownTie, 2> kTies5 = {{
    {kHead, "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.decoder.bias", "lm_head.bias"}}};
constexpr std::array<KnownTie, 2> kTies6 = {{
    {kHead, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 2> kTies7 = {{
    {kHead, "language_model.lm_head.weight", "language_model.model.model.embed_tokens.weight"},
    {kHead, "lm_head.weight", "model.language_model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies8 = {{
    {kHead, "lm_head.weight", "transformer.wte.weight"}}};
constexpr std::array<KnownTie, 2> kTies9 = {{
    {kHead, "lm_head.weight", "model.embed_tokens.weight"},
    {kHead, "lm_head.weight", "model.language_model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies10 = {{
    {kHead, "proj_out.weight", "model.decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 3> kTies11 = {{
    {kHead, "lm_head.weight", "shared.weight"},
    {kMore, "decoder.embed_tokens.weight", "shared.weight"},
    {kMore, "encoder.embed_tokens.weight", "shared.weight"}}};
constexpr std::array<KnownTie, 1> kTies12 = {{
    {kHead, "language_model.lm_head.weight", "language_model.model.decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies13 = {{
    {kHead, "lm_head.weight", "model.text_model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies14 = {{
    {kHead, "lm_head.weight", "backbone.embeddings.weight"}}};
constexpr std::array<KnownTie, 4> kTies15 = {{
    {kHead, "lm_head.weight", "shared.weight"},
    {kHead, "t2u_model.lm_head.weight", "t2u_model.model.decoder.embed_tokens.weight"},
    {kMore, "text_decoder.embed_tokens.weight", "shared.weight"},
    {kMore, "text_encoder.embed_tokens.weight", "shared.weight"}}};
constexpr std::array<KnownTie, 2> kTies16 = {{
    {kHead, "cls.predictions.decoder.weight", "ernie.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 2> kTies17 = {{
    {kHead, "cls.predictions.decoder.weight", "roc_bert.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 2> kTies18 = {{
    {kHead, "predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"},
    {kMore, "predictions.decoder.bias", "predictions.bias"}}};
constexpr std::array<KnownTie, 2> kTies19 = {{
    {kHead, "text_decoder.cls.predictions.decoder.weight", "text_decoder.bert.embeddings.word_embeddings.weight"},
    {kMore, "text_decoder.cls.predictions.decoder.bias", "text_decoder.cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies20 = {{
    {kHead, "lm_head.weight", "transformer.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies21 = {{
    {kHead, "lm_head.weight", "embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies22 = {{
    {kHead, "lm_head.weight", "embed_tokens.weight"},
    {kHead, "lm_head.weight", "model.language_model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies23 = {{
    {kHead, "lm_head.decoder.weight", "data2vec_text.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.decoder.bias", "lm_head.bias"}}};
constexpr std::array<KnownTie, 2> kTies24 = {{
    {kHead, "cls.predictions.decoder.weight", "deberta.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies25 = {{
    {kHead, "generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies26 = {{
    {kHead, "pred_layer.proj.weight", "transformer.embeddings.weight"}}};
constexpr std::array<KnownTie, 2> kTies27 = {{
    {kHead, "cls.predictions.decoder.weight", "fnet.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies28 = {{
    {kHead, "text_model.lm_head.weight", "text_model.model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies29 = {{
    {kHead, "cls.predictions.decoder.weight", "mobilebert.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies30 = {{
    {kHead, "decoder.weight", "model.embeddings.tok_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies31 = {{
    {kHead, "lm_head.weight", "transformer.tokens_embed.weight"}}};
constexpr std::array<KnownTie, 2> kTies32 = {{
    {kHead, "lm_head.decoder.weight", "roberta_prelayernorm.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.decoder.bias", "lm_head.bias"}}};
constexpr std::array<KnownTie, 2> kTies33 = {{
    {kHead, "cls.predictions.decoder.weight", "roformer.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 3> kTies34 = {{
    {kHead, "lm_head.weight", "shared.weight"},
    {kHead, "t2u_model.lm_head.weight", "t2u_model.model.decoder.embed_tokens.weight"},
    {kMore, "text_decoder.embed_tokens.weight", "shared.weight"}}};
constexpr std::array<KnownTie, 2> kTies35 = {{
    {kHead, "lm_head.weight", "shared.weight"},
    {kMore, "text_decoder.embed_tokens.weight", "shared.weight"}}};
constexpr std::array<KnownTie, 3> kTies36 = {{
    {kHead, "lm_head.weight", "shared.weight"},
    {kMore, "text_decoder.embed_tokens.weight", "shared.weight"},
    {kMore, "text_encoder.embed_tokens.weight", "shared.weight"}}};
constexpr std::array<KnownTie, 2> kTies37 = {{
    {kHead, "cls.predictions.decoder.weight", "visual_bert.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies38 = {{
    {kHead, "lm_head.weight", "model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies39 = {{
    {kHead, "lm_head.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.decoder.bias", "lm_head.bias"}}};
constexpr std::array<KnownTie, 1> kTies40 = {{
    {kHead, "output_projection.weight", "biogpt.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies41 = {{
    {kHead, "lm_head.weight", "model.local_encoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies42 = {{
    {kHead, "mlm_score.decoder.weight", "bridgetower.text_model.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 2> kTies43 = {{
    {kHead, "log_softmax.mlp.layer0.weight", "model.transf_decoder._embedding.token_embedding.weight"},
    {kHead, "proj_out.weight", "model.decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies44 = {{
    {kHead, "generator_lm_head.weight", "convbert.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies45 = {{
    {kHead, "lm_head.weight", "transformer.w.weight"}}};
constexpr std::array<KnownTie, 2> kTies46 = {{
    {kHead, "head.weight", "model.embed_tokens.weight"},
    {kHead, "lm_head.weight", "model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies47 = {{
    {kHead, "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies48 = {{
    {kHead, "lm_head.decoder.weight", "esm.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies49 = {{
    {kHead, "lm_head.decoder.weight", "esmc.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 3> kTies50 = {{
    {kHead, "lm_head.weight", "model.language_model.shared.weight"},
    {kMore, "model.language_model.decoder.embed_tokens.weight", "model.language_model.shared.weight"},
    {kMore, "model.language_model.encoder.embed_tokens.weight", "model.language_model.shared.weight"}}};
constexpr std::array<KnownTie, 2> kTies51 = {{
    {kHead, "model.decoder.output_projection.weight", "model.decoder.embed_tokens.weight"},
    {kMore, "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies52 = {{
    {kHead, "decoder.output_projection.weight", "decoder.embed_tokens.weight"},
    {kMore, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies53 = {{
    {kHead, "lm_head.weight", "funnel.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies54 = {{
    {kHead, "output.weight", "git.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 2> kTies55 = {{
    {kHead, "embed_out.weight", "gpt_neox.embed_in.weight"},
    {kHead, "lm_head.weight", "gpt_neox.embed_in.weight"}}};
constexpr std::array<KnownTie, 1> kTies56 = {{
    {kHead, "embed_out.weight", "gpt_neox_japanese.embed_in.weight"}}};
constexpr std::array<KnownTie, 2> kTies57 = {{
    {kHead, "lm_head.decoder.weight", "ibert.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.decoder.bias", "lm_head.bias"}}};
constexpr std::array<KnownTie, 2> kTies58 = {{
    {kHead, "lm_head.additional_fc.weight", "model.embed_tokens.additional_embedding.weight"},
    {kHead, "lm_head.weight", "model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies59 = {{
    {kHead, "lm_head.weight", "model.language_model.embed_tokens.weight"},
    {kHead, "model.llm.unembed.weight", "model.llm.embed.weight"}}};
constexpr std::array<KnownTie, 1> kTies60 = {{
    {kHead, "lm_head.weight", "model.embed_tokens.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies61 = {{
    {kHead, "cls.predictions.decoder.weight", "layoutlm.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 3> kTies62 = {{
    {kHead, "lm_head.weight", "led.shared.weight"},
    {kMore, "led.decoder.embed_tokens.weight", "led.shared.weight"},
    {kMore, "led.encoder.embed_tokens.weight", "led.shared.weight"}}};
constexpr std::array<KnownTie, 1> kTies63 = {{
    {kHead, "language_model.lm_head.weight", "language_model.model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies64 = {{
    {kHead, "lm_head.decoder.weight", "longformer.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.decoder.bias", "lm_head.bias"}}};
constexpr std::array<KnownTie, 3> kTies65 = {{
    {kHead, "entity_predictions.decoder.weight", "luke.entity_embeddings.entity_embeddings.weight"},
    {kHead, "lm_head.decoder.weight", "luke.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.bias", "lm_head.decoder.bias"}}};
constexpr std::array<KnownTie, 1> kTies66 = {{
    {kHead, "cls.predictions.decoder.weight", "lxmert.embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies67 = {{
    {kHead, "lm_head.weight", "model.text_model.embeddings.tok_embeddings.weight"}}};
constexpr std::array<KnownTie, 2> kTies68 = {{
    {kHead, "lm_head.decoder.weight", "mpnet.embeddings.word_embeddings.weight"},
    {kMore, "lm_head.decoder.bias", "lm_head.bias"}}};
constexpr std::array<KnownTie, 2> kTies69 = {{
    {kHead, "cls.predictions.decoder.weight", "mra.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 2> kTies70 = {{
    {kHead, "lm_head.weight", "backbone.embeddings.weight"},
    {kHead, "lm_head.weight", "model.embeddings.weight"}}};
constexpr std::array<KnownTie, 2> kTies71 = {{
    {kHead, "lm_head.weight", "model.embed_tokens.word_embeddings.weight"},
    {kMore, "unembedding_projection.weight", "model.embed_tokens.embedding_projection.weight"}}};
constexpr std::array<KnownTie, 2> kTies72 = {{
    {kHead, "cls.predictions.decoder.weight", "nomic_bert.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 2> kTies73 = {{
    {kHead, "cls.predictions.decoder.weight", "nystromformer.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies74 = {{
    {kHead, "decoder.lm_head.weight", "decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 3> kTies75 = {{
    {kHead, "lm_head.weight", "decoder.embed_tokens.weight"},
    {kMore, "decoder.embed_tokens.weight", "shared.weight"},
    {kMore, "encoder.embed_tokens.weight", "shared.weight"}}};
constexpr std::array<KnownTie, 2> kTies76 = {{
    {kHead, "lm_head.weight", "prophetnet.word_embeddings.weight"},
    {kMore, "prophetnet.decoder.word_embeddings.weight", "prophetnet.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 3> kTies77 = {{
    {kHead, "lm_head.weight", "prophetnet.word_embeddings.weight"},
    {kMore, "prophetnet.decoder.word_embeddings.weight", "prophetnet.word_embeddings.weight"},
    {kMore, "prophetnet.encoder.word_embeddings.weight", "prophetnet.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies78 = {{
    {kHead, "thinker.lm_head.weight", "thinker.model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies79 = {{
    {kHead, "head.weight", "rwkv.embeddings.weight"}}};
constexpr std::array<KnownTie, 2> kTies80 = {{
    {kHead, "model.lm_head.weight", "model.model.language_model.embed_tokens.weight"},
    {kHead, "model.lm_head.weight", "model.model.language_model.model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 1> kTies81 = {{
    {kHead, "text_decoder_postnet.lm_head.weight", "speecht5.decoder.prenet.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies82 = {{
    {kHead, "cls.predictions.decoder.weight", "transformer.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies83 = {{
    {kHead, "lm_head.out_proj.weight", "model.decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 6> kTies84 = {{
    {kHead, "lm_head.out_proj.weight", "model.encoder.embed_tokens.weight"},
    {kHead, "lm_head.out_proj.weight", "model.encoder.text_model.embed_tokens.weight"},
    {kMore, "model.decoder.embed_tokens.eoi_embedding", "model.encoder.embed_tokens.eoi_embedding"},
    {kMore, "model.decoder.embed_tokens.eoi_embedding", "model.encoder.text_model.embed_tokens.eoi_embedding"},
    {kMore, "model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight"},
    {kMore, "model.decoder.embed_tokens.weight", "model.encoder.text_model.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 2> kTies85 = {{
    {kHead, "cls.predictions.decoder.weight", "tapas.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};
constexpr std::array<KnownTie, 1> kTies86 = {{
    {kHead, "output_projection.weight", "model.decoder.embed_tokens.weight"}}};
constexpr std::array<KnownTie, 5> kTies87 = {{
    {kHead, "lm_head.weight", "shared.weight"},
    {kMore, "decoder.embed_tokens.weight", "shared.weight"},
    {kMore, "encoder.embed_patches.proj.bias", "patch_embed.proj.bias"},
    {kMore, "encoder.embed_patches.proj.weight", "patch_embed.proj.weight"},
    {kMore, "encoder.embed_tokens.weight", "shared.weight"}}};
constexpr std::array<KnownTie, 1> kTies88 = {{
    {kHead, "mlm_score.decoder.weight", "vilt.embeddings.text_embeddings.word_embeddings.weight"}}};
constexpr std::array<KnownTie, 1> kTies89 = {{
    {kHead, "lm_loss.weight", "transformer.word_embedding.weight"}}};
constexpr std::array<KnownTie, 2> kTies90 = {{
    {kHead, "cls.predictions.decoder.weight", "yoso.embeddings.word_embeddings.weight"},
    {kMore, "cls.predictions.decoder.bias", "cls.predictions.bias"}}};

constexpr std::array<ClassTies, 357> kClasses = {{
    {"afmoe", "AfmoeForCausalLM", kTies0, false},
    {"apertus", "ApertusForCausalLM", kTies0, false},
    {"arcee", "ArceeForCausalLM", kTies0, false},
    {"aria_text", "AriaTextForCausalLM", kTies0, false},
    {"axk1", "AXK1ForCausalLM", kTies0, false},
    {"axk2", "AXK2ForCausalLM", kTies0, false},
    {"bamba", "BambaForCausalLM", kTies0, false},
    {"bitnet", "BitNetForCausalLM", kTies0, false},
    {"chameleon", "ChameleonForConditionalGeneration", kTies0, false},
    {"cohere", "CohereForCausalLM", kTies0, false},
    {"cohere2", "Cohere2ForCausalLM", kTies0, false},
    {"cohere2_moe", "Cohere2MoeForCausalLM", kTies0, false},
    {"cohere_compass_text", "CohereCompassForCausalLM", kTies0, false},
    {"cwm", "CwmForCausalLM", kTies0, false},
    {"deepseek_v2", "DeepseekV2ForCausalLM", kTies0, false},
    {"deepseek_v3", "DeepseekV3ForCausalLM", kTies0, false},
    {"deepseek_v32", "DeepseekV32ForCausalLM", kTies0, false},
    {"diffllama", "DiffLlamaForCausalLM", kTies0, false},
    {"doge", "DogeForCausalLM", kTies0, false},
    {"dots1", "Dots1ForCausalLM", kTies0, false},
    {"emu3_text_model", "Emu3ForCausalLM", kTies0, false},
    {"ernie4_5", "Ernie4_5ForCausalLM", kTies0, false},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", kTies0, false},
    {"eurobert", "EuroBertForMaskedLM", kTies0, false},
    {"evolla", "EvollaForProteinText2Text", kTies0, false},
    {"exaone4", "Exaone4ForCausalLM", kTies0, false},
    {"exaone_moe", "ExaoneMoeForCausalLM", kTies0, false},
    {"falcon_h1", "FalconH1ForCausalLM", kTies0, false},
    {"flex_olmo", "FlexOlmoForCausalLM", kTies0, false},
    {"gemma", "GemmaForCausalLM", kTies0, false},
    {"gemma2", "Gemma2ForCausalLM", kTies0, false},
    {"gemma3_text", "Gemma3ForCausalLM", kTies0, false},
    {"gemma3n_text", "Gemma3nForCausalLM", kTies0, false},
    {"gemma4_assistant", "Gemma4AssistantForCausalLM", kTies0, false},
    {"gemma4_text", "Gemma4ForCausalLM", kTies0, false},
    {"gemma4_unified_assistant", "Gemma4UnifiedAssistantForCausalLM", kTies0, false},
    {"gemma4_unified_text", "Gemma4UnifiedForCausalLM", kTies0, false},
    {"glm", "GlmForCausalLM", kTies0, false},
    {"glm4", "Glm4ForCausalLM", kTies0, false},
    {"glm4_moe", "Glm4MoeForCausalLM", kTies0, false},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", kTies0, false},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", kTies0, false},
    {"gpt_oss", "GptOssForCausalLM", kTies0, false},
    {"granite", "GraniteForCausalLM", kTies0, false},
    {"granite_swa", "GraniteSWAForCausalLM", kTies0, false},
    {"granitemoe", "GraniteMoeForCausalLM", kTies0, false},
    {"granitemoe_swa", "GraniteMoeSWAForCausalLM", kTies0, false},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", kTies0, false},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM", kTies0, false},
    {"helium", "HeliumForCausalLM", kTies0, false},
    {"hrm_text", "HrmTextForCausalLM", kTies0, false},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", kTies0, false},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", kTies0, false},
    {"hy_v3", "HYV3ForCausalLM", kTies0, false},
    {"hy_v4", "HYV4ForCausalLM", kTies0, false},
    {"hyperclovax", "HyperCLOVAXForCausalLM", kTies0, false},
    {"inkling_text", "InklingForCausalLM", kTies0, false},
    {"jais2", "Jais2ForCausalLM", kTies0, false},
    {"jamba", "JambaForCausalLM", kTies0, false},
    {"jetmoe", "JetMoeForCausalLM", kTies0, false},
    {"kimi_linear", "KimiLinearForCausalLM", kTies0, false},
    {"laguna", "LagunaForCausalLM", kTies0, false},
    {"lfm2", "Lfm2ForCausalLM", kTies0, false},
    {"lfm2_moe", "Lfm2MoeForCausalLM", kTies0, false},
    {"llama", "LlamaForCausalLM", kTies0, false},
    {"llama4_text", "Llama4ForCausalLM", kTies0, false},
    {"longcat_flash", "LongcatFlashForCausalLM", kTies0, false},
    {"mellum", "MellumForCausalLM", kTies0, false},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM", kTies0, false},
    {"minicpm3", "MiniCPM3ForCausalLM", kTies0, false},
    {"minimax", "MiniMaxForCausalLM", kTies0, false},
    {"minimax_m2", "MiniMaxM2ForCausalLM", kTies0, false},
    {"minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", kTies0, false},
    {"ministral", "MinistralForCausalLM", kTies0, false},
    {"ministral3", "Ministral3ForCausalLM", kTies0, false},
    {"mistral", "MistralForCausalLM", kTies0, false},
    {"mistral4", "Mistral4ForCausalLM", kTies0, false},
    {"mixtral", "MixtralForCausalLM", kTies0, false},
    {"nanochat", "NanoChatForCausalLM", kTies0, false},
    {"nemotron", "NemotronForCausalLM", kTies0, false},
    {"olmo", "OlmoForCausalLM", kTies0, false},
    {"olmo2", "Olmo2ForCausalLM", kTies0, false},
    {"olmo3", "Olmo3ForCausalLM", kTies0, false},
    {"olmo_hybrid", "OlmoHybridForCausalLM", kTies0, false},
    {"olmoe", "OlmoeForCausalLM", kTies0, false},
    {"persimmon", "PersimmonForCausalLM", kTies0, false},
    {"phi", "PhiForCausalLM", kTies0, false},
    {"phi3", "Phi3ForCausalLM", kTies0, false},
    {"phi4_multimodal", "Phi4MultimodalForCausalLM", kTies0, false},
    {"phimoe", "PhimoeForCausalLM", kTies0, false},
    {"qwen2", "Qwen2ForCausalLM", kTies0, false},
    {"qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration", kTies0, false},
    {"qwen2_moe", "Qwen2MoeForCausalLM", kTies0, false},
    {"qwen3", "Qwen3ForCausalLM", kTies0, false},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", kTies0, false},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", kTies0, false},
    {"qwen3_moe", "Qwen3MoeForCausalLM", kTies0, false},
    {"qwen3_next", "Qwen3NextForCausalLM", kTies0, false},
    {"qwen3_omni_moe_talker_code_predictor", "Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration", kTies0, false},
    {"qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration", kTies0, false},
    {"qwen4_exp_text", "Qwen4ExpForCausalLM", kTies0, false},
    {"recurrent_gemma", "RecurrentGemmaForCausalLM", kTies0, false},
    {"seed_oss", "SeedOssForCausalLM", kTies0, false},
    {"smollm3", "SmolLM3ForCausalLM", kTies0, false},
    {"solar_open", "SolarOpenForCausalLM", kTies0, false},
    {"stablelm", "StableLmForCausalLM", kTies0, false},
    {"starcoder2", "Starcoder2ForCausalLM", kTies0, false},
    {"vaultgemma", "VaultGemmaForCausalLM", kTies0, false},
    {"xglm", "XGLMForCausalLM", kTies0, false},
    {"youtu", "YoutuForCausalLM", kTies0, false},
    {"zaya", "ZayaForCausalLM", kTies0, false},
    {"aya_vision", "AyaVisionForConditionalGeneration", kTies1, false},
    {"cohere2_vision", "Cohere2VisionForConditionalGeneration", kTies1, false},
    {"cohere_compass", "CohereCompassForConditionalGeneration", kTies1, false},
    {"deepseek_ocr2", "DeepseekOcr2ForConditionalGeneration", kTies1, false},
    {"deepseek_vl", "DeepseekVLForConditionalGeneration", kTies1, false},
    {"deepseek_vl_hybrid", "DeepseekVLHybridForConditionalGeneration", kTies1, false},
    {"exaone4_5", "Exaone4_5_ForConditionalGeneration", kTies1, false},
    {"fast_vlm", "FastVlmForConditionalGeneration", kTies1, false},
    {"fun_asr_nano", "FunAsrNanoForConditionalGeneration", kTies1, false},
    {"gemma3n", "Gemma3nForConditionalGeneration", kTies1, false},
    {"gemma4", "Gemma4ForConditionalGeneration", kTies1, false},
    {"gemma4_unified", "Gemma4UnifiedForConditionalGeneration", kTies1, false},
    {"glm46v", "Glm46VForConditionalGeneration", kTies1, false},
    {"glm4v", "Glm4vForConditionalGeneration", kTies1, false},
    {"glm4v_moe", "Glm4vMoeForConditionalGeneration", kTies1, false},
    {"glm5_next", "Glm5NextForConditionalGeneration", kTies1, false},
    {"glm_ocr", "GlmOcrForConditionalGeneration", kTies1, false},
    {"granite4_vision", "Granite4VisionForConditionalGeneration", kTies1, false},
    {"hunyuan_vl", "HunYuanVLForConditionalGeneration", kTies1, false},
    {"janus", "JanusForConditionalGeneration", kTies1, false},
    {"lfm2_vl", "Lfm2VlForConditionalGeneration", kTies1, false},
    {"lighton_ocr", "LightOnOcrForConditionalGeneration", kTies1, false},
    {"minicpmv4_6", "MiniCPMV4_6ForConditionalGeneration", kTies1, false},
    {"muse_glimmer", "MuseGlimmerForConditionalGeneration", kTies1, false},
    {"ovis2", "Ovis2ForConditionalGeneration", kTies1, false},
    {"perception_lm", "PerceptionLMForConditionalGeneration", kTies1, false},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", kTies1, false},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", kTies1, false},
    {"qwen3_asr", "Qwen3ASRForConditionalGeneration", kTies1, false},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", kTies1, false},
    {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", kTies1, false},
    {"qwen4_exp", "Qwen4ExpForConditionalGeneration", kTies1, false},
    {"vibevoice", "VibeVoiceForConditionalGeneration", kTies1, false},
    {"video_llama_3", "VideoLlama3ForConditionalGeneration", kTies1, false},
    {"aria", "AriaForConditionalGeneration", kTies2, false},
    {"fuyu", "FuyuForCausalLM", kTies2, false},
    {"gemma3", "Gemma3ForConditionalGeneration", kTies2, false},
    {"got_ocr2", "GotOcr2ForConditionalGeneration", kTies2, false},
    {"internvl", "InternVLForConditionalGeneration", kTies2, false},
    {"kimi_k25", "Kimi_K25ForConditionalGeneration", kTies2, false},
    {"llava", "LlavaForConditionalGeneration", kTies2, false},
    {"llava_next", "LlavaNextForConditionalGeneration", kTies2, false},
    {"llava_next_video", "LlavaNextVideoForConditionalGeneration", kTies2, false},
    {"llava_onevision", "LlavaOnevisionForConditionalGeneration", kTies2, false},
    {"minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration", kTies2, false},
    {"mistral3", "Mistral3ForConditionalGeneration", kTies2, false},
    {"paligemma", "PaliGemmaForConditionalGeneration", kTies2, false},
    {"qianfan_ocr", "QianfanOCRForConditionalGeneration", kTies2, false},
    {"video_llava", "VideoLlavaForConditionalGeneration", kTies2, false},
    {"vipllava", "VipLlavaForConditionalGeneration", kTies2, false},
    {"bart", "BartForCausalLM", kTies3, false},
    {"bigbird_pegasus", "BigBirdPegasusForCausalLM", kTies3, false},
    {"blenderbot", "BlenderbotForCausalLM", kTies3, false},
    {"blenderbot-small", "BlenderbotSmallForCausalLM", kTies3, false},
    {"diffusion_gemma", "DiffusionGemmaForBlockDiffusion", kTies3, false},
    {"marian", "MarianForCausalLM", kTies3, false},
    {"mbart", "MBartForCausalLM", kTies3, false},
    {"mvp", "MvpForCausalLM", kTies3, false},
    {"opt", "OPTForCausalLM", kTies3, false},
    {"pegasus", "PegasusForCausalLM", kTies3, false},
    {"plbart", "PLBartForCausalLM", kTies3, false},
    {"seamless_m4t", "SeamlessM4TTextToUnitForConditionalGeneration", kTies3, false},
    {"speech_to_text", "Speech2TextForConditionalGeneration", kTies3, false},
    {"bart", "BartForConditionalGeneration", kTies4, false},
    {"bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", kTies4, false},
    {"blenderbot", "BlenderbotForConditionalGeneration", kTies4, false},
    {"blenderbot-small", "BlenderbotSmallForConditionalGeneration", kTies4, false},
    {"m2m_100", "M2M100ForConditionalGeneration", kTies4, false},
    {"marian", "MarianMTModel", kTies4, false},
    {"mbart", "MBartForConditionalGeneration", kTies4, false},
    {"mvp", "MvpForConditionalGeneration", kTies4, false},
    {"nllb-moe", "NllbMoeForConditionalGeneration", kTies4, false},
    {"pegasus", "PegasusForConditionalGeneration", kTies4, false},
    {"pegasus_x", "PegasusXForConditionalGeneration", kTies4, false},
    {"plbart", "PLBartForConditionalGeneration", kTies4, false},
    {"camembert", "CamembertForCausalLM", kTies5, false},
    {"camembert", "CamembertForMaskedLM", kTies5, false},
    {"jina_embeddings_v3", "JinaEmbeddingsV3ForMaskedLM", kTies5, false},
    {"roberta", "RobertaForCausalLM", kTies5, false},
    {"roberta", "RobertaForMaskedLM", kTies5, false},
    {"xlm-roberta", "XLMRobertaForCausalLM", kTies5, false},
    {"xlm-roberta", "XLMRobertaForMaskedLM", kTies5, false},
    {"xlm-roberta-xl", "XLMRobertaXLForCausalLM", kTies5, false},
    {"xlm-roberta-xl", "XLMRobertaXLForMaskedLM", kTies5, false},
    {"xmod", "XmodForCausalLM", kTies5, false},
    {"xmod", "XmodForMaskedLM", kTies5, false},
    {"bert", "BertForMaskedLM", kTies6, false},
    {"bert", "BertForPreTraining", kTies6, false},
    {"bert", "BertLMHeadModel", kTies6, false},
    {"big_bird", "BigBirdForCausalLM", kTies6, false},
    {"big_bird", "BigBirdForMaskedLM", kTies6, false},
    {"big_bird", "BigBirdForPreTraining", kTies6, false},
    {"blip_text_model", "BlipTextLMHeadModel", kTies6, false},
    {"megatron-bert", "MegatronBertForCausalLM", kTies6, false},
    {"megatron-bert", "MegatronBertForMaskedLM", kTies6, false},
    {"megatron-bert", "MegatronBertForPreTraining", kTies6, false},
    {"audioflamingo3", "AudioFlamingo3ForConditionalGeneration", kTies7, false},
    {"glmasr", "GlmAsrForConditionalGeneration", kTies7, false},
    {"granite_speech", "GraniteSpeechForConditionalGeneration", kTies7, false},
    {"granite_speech_plus", "GraniteSpeechPlusForConditionalGeneration", kTies7, false},
    {"musicflamingo", "MusicFlamingoForConditionalGeneration", kTies7, false},
    {"qwen2_audio", "Qwen2AudioForConditionalGeneration", kTies7, false},
    {"vibevoice_asr", "VibeVoiceAsrForConditionalGeneration", kTies7, false},
    {"voxtral", "VoxtralForConditionalGeneration", kTies7, false},
    {"voxtral_realtime", "VoxtralRealtimeForConditionalGeneration", kTies7, false},
    {"codegen", "CodeGenForCausalLM", kTies8, false},
    {"dbrx", "DbrxForCausalLM", kTies8, false},
    {"gpt2", "GPT2DoubleHeadsModel", kTies8, false},
    {"gpt2", "GPT2LMHeadModel", kTies8, false},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", kTies8, false},
    {"gpt_neo", "GPTNeoForCausalLM", kTies8, false},
    {"gptj", "GPTJForCausalLM", kTies8, false},
    {"imagegpt", "ImageGPTForCausalImageModeling", kTies8, false},
    {"mpt", "MptForCausalLM", kTies8, false},
    {"ernie4_5_vl_moe", "Ernie4_5_VLMoeForConditionalGeneration", kTies9, false},
    {"ernie4_5_vl_moe", "Ernie4_5_VL_MoeForConditionalGeneration", kTies9, false},
    {"paddleocr_vl", "PaddleOCRVLForConditionalGeneration", kTies9, false},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", kTies9, false},
    {"qwen2_vl", "Qwen2VLForConditionalGeneration", kTies9, false},
    {"step3p7", "Step3p7ForConditionalGeneration", kTies9, false},
    {"canary", "CanaryForConditionalGeneration", kTies10, false},
    {"moonshine", "MoonshineForConditionalGeneration", kTies10, false},
    {"moonshine_streaming", "MoonshineStreamingForConditionalGeneration", kTies10, false},
    {"whisper", "WhisperForCausalLM", kTies10, false},
    {"whisper", "WhisperForConditionalGeneration", kTies10, false},
    {"longt5", "LongT5ForConditionalGeneration", kTies11, false},
    {"mt5", "MT5ForConditionalGeneration", kTies11, false},
    {"switch_transformers", "SwitchTransformersForConditionalGeneration", kTies11, false},
    {"t5", "T5ForConditionalGeneration", kTies11, false},
    {"umt5", "UMT5ForConditionalGeneration", kTies11, false},
    {"blip-2", "Blip2ForConditionalGeneration", kTies12, false},
    {"blip-2", "Blip2Model", kTies12, false},
    {"instructblip", "InstructBlipForConditionalGeneration", kTies12, false},
    {"instructblipvideo", "InstructBlipVideoForConditionalGeneration", kTies12, false},
    {"emu3", "Emu3ForConditionalGeneration", kTies13, false},
    {"idefics2", "Idefics2ForConditionalGeneration", kTies13, false},
    {"idefics3", "Idefics3ForConditionalGeneration", kTies13, false},
    {"smolvlm", "SmolVLMForConditionalGeneration", kTies13, false},
    {"falcon_mamba", "FalconMambaForCausalLM", kTies14, false},
    {"mamba", "MambaForCausalLM", kTies14, false},
    {"mamba2", "Mamba2ForCausalLM", kTies14, false},
    {"xlstm", "xLSTMForCausalLM", kTies14, false},
    {"seamless_m4t", "SeamlessM4TForTextToSpeech", kTies15, false},
    {"seamless_m4t", "SeamlessM4TModel", kTies15, false},
    {"seamless_m4t_v2", "SeamlessM4Tv2ForTextToSpeech", kTies15, false},
    {"seamless_m4t_v2", "SeamlessM4Tv2Model", kTies15, false},
    {"ernie", "ErnieForCausalLM", kTies16, false},
    {"ernie", "ErnieForMaskedLM", kTies16, false},
    {"ernie", "ErnieForPreTraining", kTies16, false},
    {"roc_bert", "RoCBertForCausalLM", kTies17, false},
    {"roc_bert", "RoCBertForMaskedLM", kTies17, false},
    {"roc_bert", "RoCBertForPreTraining", kTies17, false},
    {"albert", "AlbertForMaskedLM", kTies18, false},
    {"albert", "AlbertForPreTraining", kTies18, false},
    {"blip", "BlipForConditionalGeneration", kTies19, false},
    {"blip", "BlipForQuestionAnswering", kTies19, false},
    {"bloom", "BloomForCausalLM", kTies20, false},
    {"falcon", "FalconForCausalLM", kTies20, false},
    {"blt_patcher", "BltPatcher", kTies21, false},
    {"pix2struct_text_model", "Pix2StructTextModel", kTies21, false},
    {"cosmos3_edge", "Cosmos3EdgeForConditionalGeneration", kTies22, false},
    {"cosmos3_omni", "Cosmos3OmniForConditionalGeneration", kTies22, false},
    {"data2vec-text", "Data2VecTextForCausalLM", kTies23, false},
    {"data2vec-text", "Data2VecTextForMaskedLM", kTies23, false},
    {"deberta", "DebertaForMaskedLM", kTies24, false},
    {"deberta-v2", "DebertaV2ForMaskedLM", kTies24, false},
    {"electra", "ElectraForCausalLM", kTies25, false},
    {"electra", "ElectraForMaskedLM", kTies25, false},
    {"flaubert", "FlaubertWithLMHeadModel", kTies26, false},
    {"xlm", "XLMWithLMHeadModel", kTies26, false},
    {"fnet", "FNetForMaskedLM", kTies27, false},
    {"fnet", "FNetForPreTraining", kTies27, false},
    {"kosmos-2", "Kosmos2ForConditionalGeneration", kTies28, false},
    {"kosmos-2.5", "Kosmos2_5ForConditionalGeneration", kTies28, false},
    {"mobilebert", "MobileBertForMaskedLM", kTies29, false},
    {"mobilebert", "MobileBertForPreTraining", kTies29, false},
    {"modernbert", "ModernBertForMaskedLM", kTies30, false},
    {"modernbert-decoder", "ModernBertDecoderForCausalLM", kTies30, false},
    {"openai-gpt", "OpenAIGPTDoubleHeadsModel", kTies31, false},
    {"openai-gpt", "OpenAIGPTLMHeadModel", kTies31, false},
    {"roberta-prelayernorm", "RobertaPreLayerNormForCausalLM", kTies32, false},
    {"roberta-prelayernorm", "RobertaPreLayerNormForMaskedLM", kTies32, false},
    {"roformer", "RoFormerForCausalLM", kTies33, false},
    {"roformer", "RoFormerForMaskedLM", kTies33, false},
    {"seamless_m4t", "SeamlessM4TForSpeechToSpeech", kTies34, false},
    {"seamless_m4t_v2", "SeamlessM4Tv2ForSpeechToSpeech", kTies34, false},
    {"seamless_m4t", "SeamlessM4TForSpeechToText", kTies35, false},
    {"seamless_m4t_v2", "SeamlessM4Tv2ForSpeechToText", kTies35, false},
    {"seamless_m4t", "SeamlessM4TForTextToText", kTies36, false},
    {"seamless_m4t_v2", "SeamlessM4Tv2ForTextToText", kTies36, false},
    {"visual_bert", "VisualBertForPreTraining", kTies37, false},
    {"visual_bert", "VisualBertForRegionToPhraseAlignment", kTies37, false},
    {"zamba", "ZambaForCausalLM", kTies38, true},
    {"zamba2", "Zamba2ForCausalLM", kTies38, true},
    {"bert-generation", "BertGenerationDecoder", kTies39, false},
    {"biogpt", "BioGptForCausalLM", kTies40, false},
    {"blt", "BltForCausalLM", kTies41, false},
    {"bridgetower", "BridgeTowerForMaskedLM", kTies42, false},
    {"cohere_asr", "CohereAsrForConditionalGeneration", kTies43, false},
    {"convbert", "ConvBertForMaskedLM", kTies44, false},
    {"ctrl", "CTRLLMHeadModel", kTies45, false},
    {"deepseek_v4", "DeepseekV4ForCausalLM", kTies46, false},
    {"distilbert", "DistilBertForMaskedLM", kTies47, false},
    {"esm", "EsmForMaskedLM", kTies48, false},
    {"esmc", "EsmcForMaskedLM", kTies49, false},
    {"florence2", "Florence2ForConditionalGeneration", kTies50, false},
    {"fsmt", "FSMTForConditionalGeneration", kTies51, false},
    {"fsmt", "FSMTModel", kTies52, false},
    {"funnel", "FunnelForMaskedLM", kTies53, false},
    {"git", "GitForCausalLM", kTies54, false},
    {"gpt_neox", "GPTNeoXForCausalLM", kTies55, false},
    {"gpt_neox_japanese", "GPTNeoXJapaneseForCausalLM", kTies56, false},
    {"ibert", "IBertForMaskedLM", kTies57, false},
    {"idefics", "IdeficsForVisionText2Text", kTies58, false},
    {"inkling_mm_model", "InklingForConditionalGeneration", kTies59, false},
    {"kyutai_speech_to_text", "KyutaiSpeechToTextForConditionalGeneration", kTies60, false},
    {"layoutlm", "LayoutLMForMaskedLM", kTies61, false},
    {"led", "LEDForConditionalGeneration", kTies62, false},
    {"llama4", "Llama4ForConditionalGeneration", kTies63, false},
    {"longformer", "LongformerForMaskedLM", kTies64, false},
    {"luke", "LukeForMaskedLM", kTies65, false},
    {"lxmert", "LxmertForPreTraining", kTies66, false},
    {"modernvbert", "ModernVBertForMaskedLM", kTies67, false},
    {"mpnet", "MPNetForMaskedLM", kTies68, false},
    {"mra", "MraForMaskedLM", kTies69, false},
    {"nemotron_h", "NemotronHForCausalLM", kTies70, false},
    {"neomme", "NeoMMEForMaskedLM", kTies71, false},
    {"nomic_bert", "NomicBertForMaskedLM", kTies72, false},
    {"nystromformer", "NystromformerForMaskedLM", kTies73, false},
    {"pix2struct", "Pix2StructForConditionalGeneration", kTies74, false},
    {"pop2piano", "Pop2PianoForConditionalGeneration", kTies75, false},
    {"prophetnet", "ProphetNetForCausalLM", kTies76, false},
    {"prophetnet", "ProphetNetForConditionalGeneration", kTies77, false},
    {"qwen2_5_omni", "Qwen2_5OmniForConditionalGeneration", kTies78, false},
    {"rwkv", "RwkvForCausalLM", kTies79, false},
    {"shieldgemma2", "ShieldGemma2ForImageClassification", kTies80, false},
    {"speecht5", "SpeechT5ForSpeechToText", kTies81, false},
    {"squeezebert", "SqueezeBertForMaskedLM", kTies82, false},
    {"t5gemma", "T5GemmaForConditionalGeneration", kTies83, false},
    {"t5gemma2", "T5Gemma2ForConditionalGeneration", kTies84, false},
    {"tapas", "TapasForMaskedLM", kTies85, false},
    {"trocr", "TrOCRForCausalLM", kTies86, false},
    {"udop", "UdopForConditionalGeneration", kTies87, true},
    {"vilt", "ViltForMaskedLM", kTies88, false},
    {"xlnet", "XLNetLMHeadModel", kTies89, false},
    {"yoso", "YosoForMaskedLM", kTies90, false}}};

}  // namespace

std::span<const ClassTies> known_ties() { return kClasses; }

}  // namespace evalcar::checkpoint
