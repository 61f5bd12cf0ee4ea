#include "evaluator/service/wrapper.h"

#include <catch2/catch_test_macros.hpp>

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
  CHECK(of("llama", -1).content == text::ContentForm::kText);
  CHECK(of("qwen2_vl").content == text::ContentForm::kParts);
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
  protocol::EvaluationSettings settings;
  CHECK(of("qwen2_5_vl").pixels(settings).max_pixels == settings.max_pixels);
  CHECK(of("qwen3_vl").pixels(settings).max_pixels == std::nullopt);
  CHECK(of("qwen2_vl").pixels(settings).min_pixels == std::nullopt);

  settings.max_pixels = 500000;
  for (const char* family : {"qwen2_5_vl", "qwen3_vl", "qwen2_vl"})
    CHECK(of(family).pixels(settings).max_pixels == 500000);
}
