#include "evaluator/service/generation.h"

#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "evaluator/service/wrapper.h"
#include "evaluator/text/tokenizer_config.h"

using namespace evalcar;
using service::apply_gen_kwargs;
using service::Draws;
using service::load_generation_config;

namespace {

/// A folder with one generation_config.json, or another file, removed at the end of the test.
class ConfigFolder {
 public:
  explicit ConfigFolder(const std::string& content,
                        const std::string& file = "generation_config.json") {
    std::string name = (std::filesystem::temp_directory_path() / "evalcar-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
    std::ofstream(path_ + "/" + file) << content;
  }
  ~ConfigFolder() { std::filesystem::remove_all(path_); }
  ConfigFolder(const ConfigFolder&) = delete;
  ConfigFolder& operator=(const ConfigFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Letters a and b, and an end token if it is named.
text::Tokenizer tokenizer(bool has_end = true) {
  text::TokenizerConfig config;
  if (has_end) config.named_tokens["eos_token"] = "<end>";
  return text::Tokenizer::parse(
             R"({"added_tokens":[{"id":2,"content":"<end>","special":true},)"
             R"({"id":3,"content":"<other>","special":true}],"normalizer":null,)"
             R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
             R"("decoder":{"type":"ByteLevel"},"post_processor":null,"model":{"type":"BPE",)"
             R"("vocab":{"a":0,"b":1},"merges":[]}})",
             config)
      .value();
}

/// What answers are generated with under a wrapper that hands over so much.
Result<engine::GenerationSettings> effective(Draws draws, const std::string& gen_kwargs,
                                             const std::string& generation_config) {
  const ConfigFolder folder(generation_config);
  EVALCAR_ASSIGN_OR_RETURN(const auto config,
                           load_generation_config(RealFileSystem(), folder.path()));
  EVALCAR_ASSIGN_OR_RETURN(const auto task, apply_gen_kwargs({}, gen_kwargs));
  service::Wrapper wrapper;
  wrapper.draws = draws;
  return service::effective_generation(task, {}, config, tokenizer(), wrapper);
}

}  // namespace

TEST_CASE("a greedy answer has the checkpoint's repetition penalty, and one end: the tokenizer's") {
  for (const Draws draws : {Draws::kHandsOverBoth, Draws::kHandsOverGiven, Draws::kHandsOverTopP}) {
    const auto settings = effective(
        draws, "",
        R"({"do_sample": true, "temperature": 0.1, "top_k": 1, "top_p": 0.8, "min_p": 0.1,)"
        R"("repetition_penalty": 1.05, "eos_token_id": [2, 3]})");
    REQUIRE(settings.has_value());
    CHECK(settings->repetition_penalty == 1.05);
    CHECK(settings->temperature == 0);
    CHECK(settings->top_k == 0);
    CHECK(settings->top_p == 1);
    CHECK(settings->stop_ids == std::vector<std::int32_t>{2});
  }
  const auto endless = service::effective_generation({}, {}, {}, tokenizer(false), {});
  REQUIRE_FALSE(endless.has_value());
  CHECK(endless.error().message.find("no eos_token") != std::string::npos);
}

// By transformers' _prepare_generation_config: what generate() is given counts, None too; else the
// file; else top_k 50 and top_p 1.
TEST_CASE("a drawn answer has the top_k and top_p that the wrapper's call of generate() has") {
  struct Case {
    Draws draws;
    const char* gen_kwargs;
    const char* config;
    std::int64_t top_k;
    double top_p;
  };
  const char* const both = R"({"top_k": 20, "top_p": 0.8})";
  const char* const off = R"({"top_k": 0})";
  for (const Case& c :
       {Case{Draws::kHandsOverBoth, "", both, 0, 1},
        Case{Draws::kHandsOverBoth, ",top_k=7,top_p=0.5", both, 7, 0.5},
        Case{Draws::kHandsOverBoth, "", "{}", 0, 1},
        Case{Draws::kHandsOverGiven, "", both, 20, 0.8},
        Case{Draws::kHandsOverGiven, ",top_k=7,top_p=0.5", both, 7, 0.5},
        Case{Draws::kHandsOverGiven, "", "{}", 50, 1}, Case{Draws::kHandsOverGiven, "", off, 0, 1},
        Case{Draws::kHandsOverTopP, "", both, 20, 1},
        Case{Draws::kHandsOverTopP, ",top_p=0.5", both, 20, 0.5},
        Case{Draws::kHandsOverTopP, "", "{}", 50, 1}, Case{Draws::kHandsOverTopP, "", off, 0, 1}}) {
    INFO(c.gen_kwargs << " over " << c.config << " by wrapper " << static_cast<int>(c.draws));
    const auto settings =
        effective(c.draws, std::string("temperature=0.7") + c.gen_kwargs, c.config);
    REQUIRE(settings.has_value());
    CHECK(settings->temperature == 0.7);
    CHECK(settings->top_k == c.top_k);
    CHECK(settings->top_p == c.top_p);
  }
}

TEST_CASE("a draw that the wrapper or the engine does not do is refused by name") {
  const auto unseen = effective(Draws::kHandsOverTopP, "temperature=0.7,top_k=7", "{}");
  REQUIRE_FALSE(unseen.has_value());
  CHECK(unseen.error().code == ErrorCode::kInvalidArgument);
  CHECK(unseen.error().message.find("top_k=7") != std::string::npos);
  for (const char* const key : {"min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"}) {
    const std::string config = std::string("{\"") + key + "\": 0.05}";
    const auto refused = effective(Draws::kHandsOverBoth, "temperature=0.7", config);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ErrorCode::kUnsupported);
    CHECK(refused.error().message.find(std::string(key) + " = 0.05") != std::string::npos);
    CHECK(effective(Draws::kHandsOverBoth, "", config).has_value());
  }
  CHECK(effective(Draws::kHandsOverGiven, "temperature=0.7",
                  R"({"min_p": 0, "typical_p": 1.0, "top_h": null, "eta_cutoff": 0.0})")
            .has_value());
}

TEST_CASE("strict ends an answer at every end token of the checkpoint, lmms-eval's way at one") {
  const auto ends = [](const std::string& compat, const std::string& eos) {
    const ConfigFolder folder("{\"eos_token_id\": " + eos + "}");
    const auto config = load_generation_config(RealFileSystem(), folder.path());
    REQUIRE(config.has_value());
    protocol::EvaluationSettings settings;
    settings.compat = compat;
    return service::effective_generation({}, settings, *config, tokenizer(), {})->stop_ids;
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(ends("strict", "[3, 2, 3]") == Ids{2, 3});
  CHECK(ends("strict", "3") == Ids{2, 3});
  CHECK(ends("strict", "null") == Ids{2});
  CHECK(ends("lmms-eval", "[3, 2]") == Ids{2});
  for (const char* const bad : {"-1", "\"x\"", "[1.5]", "[[1]]", "4294967296"}) {
    const ConfigFolder folder(std::string("{\"eos_token_id\": ") + bad + "}");
    const auto config = load_generation_config(RealFileSystem(), folder.path());
    REQUIRE(config.has_value());
    protocol::EvaluationSettings settings;
    CHECK(service::effective_generation({}, settings, *config, tokenizer(), {}).has_value());
    settings.compat = "strict";
    const auto refused = service::effective_generation({}, settings, *config, tokenizer(), {});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message.find("generation_config.json: eos_token_id") !=
          std::string::npos);
  }
}

TEST_CASE("a top_k or top_p that is none is refused where it would count, and only there") {
  for (const char* const config :
       {R"({"top_k": -1})", R"({"top_k": 1.5})", R"({"top_p": "x"})", R"({"top_p": 0})"}) {
    INFO(config);
    CHECK(effective(Draws::kHandsOverGiven, "", config).has_value());
    CHECK(effective(Draws::kHandsOverBoth, "temperature=1", config).has_value());
    CHECK(effective(Draws::kHandsOverGiven, "temperature=1,top_k=3,top_p=0.5", config).has_value());
    CHECK(effective(Draws::kHandsOverGiven, "temperature=1", config).error().code ==
          ErrorCode::kCorruption);
  }
}

TEST_CASE("without generation_config.json its settings are config.json's, as in transformers") {
  const RealFileSystem files;
  const ConfigFolder folder(
      R"({"repetition_penalty": null, "top_k": 5, "text_config": {"repetition_penalty": 1.2, "top_k": 9}})",
      "config.json");
  const auto config = load_generation_config(files, folder.path());
  REQUIRE(config.has_value());
  CHECK(config->repetition_penalty == 1.2);
  CHECK(config->top_k == 5);

  const ConfigFolder legacy(R"({"no_repeat_ngram_size": 3})", "config.json");
  const auto refused = load_generation_config(files, legacy.path());
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message.find("config.json: no_repeat_ngram_size = 3") != std::string::npos);
}

TEST_CASE("a checkpoint without generation_config.json generates with the defaults") {
  const RealFileSystem files;

  const auto config = load_generation_config(files, "/nonexistent");

  REQUIRE(config.has_value());
  CHECK(config->repetition_penalty == 1.0);
}

TEST_CASE("a generation setting that would change answers unnoticed is refused by name") {
  const RealFileSystem files;
  for (const char* const content :
       {R"({"no_repeat_ngram_size": 3})", R"({"suppress_tokens": [5]})", R"({"min_new_tokens": 2})",
        R"({"stop_strings": ["x"]})", R"({"watermarking_config": {"bias": 2.0}})",
        R"({"num_return_sequences": 2})", R"({"max_time": 1.5})"}) {
    const ConfigFolder folder(content);

    const auto config = load_generation_config(files, folder.path());

    REQUIRE_FALSE(config.has_value());
    CHECK(config.error().code == ErrorCode::kUnsupported);
    CHECK(config.error().message.find("generation_config.json") != std::string::npos);
  }
}

TEST_CASE("neutral values of such settings are accepted") {
  const RealFileSystem files;
  const ConfigFolder folder(
      R"({"no_repeat_ngram_size": 0, "suppress_tokens": null, "min_length": 0})");
  CHECK(load_generation_config(files, folder.path()).has_value());
}

TEST_CASE(
    "generation_config.json that is not an object, or has a penalty that is no number, is "
    "corrupt") {
  const RealFileSystem files;
  for (const char* const content :
       {"[1", "[]", R"({"repetition_penalty": "x"})", R"({"repetition_penalty": 0})"}) {
    const ConfigFolder folder(content);
    const auto config = load_generation_config(files, folder.path());
    REQUIRE_FALSE(config.has_value());
    CHECK(config.error().code == ErrorCode::kCorruption);
  }
}

TEST_CASE("a hostile depth in generation_config.json is an error, not a crash") {
  const RealFileSystem files;
  const ConfigFolder folder("{\"min_length\": " + std::string(400000, '[') +
                            std::string(400000, ']') + "}");

  const auto config = load_generation_config(files, folder.path());

  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().message.find("array") != std::string::npos);
}

TEST_CASE("gen_kwargs of the user go over the task's own") {
  tasks::GenerationDefaults defaults;
  defaults.max_new_tokens = 32;
  defaults.until = {"\n\n"};

  const auto changed = apply_gen_kwargs(defaults, "max_new_tokens=7,temperature=0.5,num_beams=1");

  REQUIRE(changed.has_value());
  CHECK(changed->max_new_tokens == 7);
  CHECK(changed->temperature == 0.5);
  CHECK(changed->until == std::vector<std::string>{"\n\n"});
}

TEST_CASE("gen_kwargs that are unknown or malformed are refused with what was expected") {
  for (const char* const text : {"max_new_tokens=0", "max_new_tokens=x", "max_gen_toks=4",
                                 "top_k=0", "num_beams=4", "beams=1", "temperature", "top_p="}) {
    const auto changed = apply_gen_kwargs({}, text);
    REQUIRE_FALSE(changed.has_value());
    CHECK(changed.error().code == ErrorCode::kInvalidArgument);
    CHECK(changed.error().message.find("expected") != std::string::npos);
  }
}
