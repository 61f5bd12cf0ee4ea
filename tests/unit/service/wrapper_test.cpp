#include "evaluator/service/wrapper.h"

#include <catch2/catch_test_macros.hpp>

#include "store/protocol/wrapper_name.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using service::wrapper_of;

namespace {

service::Wrapper of(const std::string& architecture, int image_token_id = 7) {
  engine::LoadedWeights weights;
  weights.architecture = architecture;
  weights.image_token_id = image_token_id;
  return wrapper_of(weights);
}

}  // namespace

TEST_CASE("each family is asked as its wrapper of lmms-eval asks") {
  CHECK(of("qwen2_5_vl").most_tokens == 128);
  CHECK(of("qwen3_vl").most_tokens == 128);
  CHECK(of("qwen2_vl").most_tokens == 4096);
  CHECK(of("llama", -1).most_tokens == 4096);
  CHECK(of("llava_onevision").most_tokens == 1024);
  CHECK(of("qwen2_5_vl").draws == service::Draws::kHandsOverBoth);
  CHECK(of("qwen3_vl").draws == service::Draws::kHandsOverGiven);
  for (const char* const other : {"qwen2_vl", "llama", "llava_onevision"})
    CHECK(of(other).draws == service::Draws::kHandsOverTopP);
  CHECK(of("llava_onevision").content == text::ContentForm::kParts);
  CHECK(of("llama", -1).content == text::ContentForm::kText);
  CHECK(of("qwen2_vl").content == text::ContentForm::kParts);
}

TEST_CASE("a result's notes call the wrapper by lmms-eval's name") {
  CHECK(protocol::wrapper_name("qwen2_5_vl") == "qwen2_5_vl");
  CHECK(protocol::wrapper_name("qwen3_vl") == "qwen3_vl");
  CHECK(protocol::wrapper_name("llava_onevision") == "llava_hf");
  CHECK(protocol::wrapper_name("qwen2_vl") == "huggingface");
  CHECK(protocol::wrapper_name("llama") == "huggingface");
}

TEST_CASE("Qwen3-VL's wrapper puts a system message first, and no other does") {
  const std::vector<text::Message> asked = {{"user", {{text::Content::Type::kText, "?"}}}};

  const auto wrapped = of("qwen3_vl").wrapped(asked);

  REQUIRE(wrapped.size() == 2);
  CHECK(wrapped[0].role == "system");
  CHECK(wrapped[1] == asked[0]);
  CHECK(of("qwen2_5_vl").wrapped(asked) == asked);
  CHECK(of("qwen3", -1).wrapped(asked) == asked);
}

TEST_CASE(
    "limits that the user sets take effect, and the configuration's own only for Qwen2.5-VL") {
  struct Tokens {
    std::int64_t large, small;  // of pictures of 3200 x 2400 and 400 x 300 pixels
    bool operator==(const Tokens&) const = default;
  };
  // What the resizes of qwen_vl_utils 0.0.14 and transformers 5.17 give, called from Python with
  // the limits that the wrappers pass, or the user's in their place.
  struct Case {
    const char* family;
    Tokens by_default, at_most_500000, at_most_default, at_least_300000, at_least_default;
  };
  const Case cases[] = {
      {"qwen2_5_vl", {2028, 285}, {609, 285}, {2028, 285}, {2028, 414}, {2028, 285}},
      {"qwen3_vl", {7500, 108}, {475, 108}, {1530, 108}, {7500, 300}, {7500, 221}},
      {"qwen2_vl", {9804, 154}, {609, 154}, {2028, 154}, {9804, 391}, {9804, 266}},
  };
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  for (const auto& [family, by_default, max_500000, max_default, min_300000, min_default] : cases) {
    CAPTURE(family);
    const std::string patch = std::string_view(family) == "qwen3_vl" ? "16" : "14";
    files.put_file("/m/preprocessor_config.json",
                   R"({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": )" + patch + "}");
    const auto tokens_with = [&](const protocol::EvaluationSettings& settings) {
      const auto loaded =
          vision::load_processor_settings(files, "/m", of(family).pixels(settings, {}));
      const auto tokens = [&](int height, int width) {
        const auto size = vision::prepared_size(height, width, loaded.value()).value();
        return std::int64_t{size.grid_h} * size.grid_w / 4;
      };
      return Tokens{tokens(2400, 3200), tokens(300, 400)};
    };

    CHECK(tokens_with({}) == by_default);
    CHECK(tokens_with({.max_pixels = 500000}) == max_500000);
    CHECK(tokens_with({.max_pixels_set = 1}) == max_default);
    CHECK(tokens_with({.min_pixels = 300000}) == min_300000);
    CHECK(tokens_with({.min_pixels_set = 1}) == min_default);
  }
}
