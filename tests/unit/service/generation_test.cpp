#include "evaluator/service/generation.h"

#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

using namespace evalcar;
using service::apply_gen_kwargs;
using service::load_generation_config;

namespace {

/// A folder with one generation_config.json, removed at the end of the test.
class ConfigFolder {
 public:
  explicit ConfigFolder(const std::string& content) {
    std::string name = (std::filesystem::temp_directory_path() / "evalcar-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
    std::ofstream(path_ + "/generation_config.json") << content;
  }
  ~ConfigFolder() { std::filesystem::remove_all(path_); }
  ConfigFolder(const ConfigFolder&) = delete;
  ConfigFolder& operator=(const ConfigFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("the checkpoint's repetition penalty is honoured and its sampling is not") {
  const RealFileSystem files;
  const ConfigFolder folder(
      R"({"do_sample": true, "temperature": 0.1, "top_k": 1, "repetition_penalty": 1.05, "eos_token_id": [1, 2]})");

  const auto config = load_generation_config(files, folder.path());

  REQUIRE(config.has_value());
  CHECK(config->repetition_penalty == 1.05);
}

TEST_CASE("a checkpoint without generation_config.json generates with the defaults") {
  const RealFileSystem files;

  const auto config = load_generation_config(files, "/nonexistent");

  REQUIRE(config.has_value());
  CHECK(config->repetition_penalty == 1.0);
}

TEST_CASE("a generation setting that would change answers unnoticed is refused by name") {
  const RealFileSystem files;
  for (const char* const content : {R"({"no_repeat_ngram_size": 3})", R"({"suppress_tokens": [5]})",
                                    R"({"min_new_tokens": 2})"}) {
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
  for (const char* const text : {"max_new_tokens=0", "max_new_tokens=x", "num_beams=4", "beams=1",
                                 "temperature", "top_p="}) {
    const auto changed = apply_gen_kwargs({}, text);
    REQUIRE_FALSE(changed.has_value());
    CHECK(changed.error().code == ErrorCode::kInvalidArgument);
    CHECK(changed.error().message.find("expected") != std::string::npos);
  }
}
