#include "evaluator/models/tower_hash.h"

#include <catch2/catch_test_macros.hpp>

#include "evaluator/models/llava_onevision/layout.h"
#include "evaluator/models/qwen_vl.h"

using namespace evalcar;
using checkpoint::DType;
using checkpoint::TensorDigest;
using models::tower_sha256;

namespace {

using Tensors = std::vector<TensorDigest>;

Tensors qwen() {
  return {{"model.embed_tokens.weight", DType::kFloat32, {9, 4}, "a"},
          {"lm_head.weight", DType::kFloat32, {9, 4}, "b"},
          {"model.layers.0.mlp.down_proj.weight", DType::kFloat32, {4, 8}, "c"},
          {"visual.patch_embed.proj.weight", DType::kFloat32, {4, 3, 2, 14, 14}, "d"},
          {"visual.deepstack_merger_list.0.norm.weight", DType::kFloat32, {16}, "e"}};
}

weights::WeightLayout layout_of(std::string (*canonical_name)(std::string_view)) {
  weights::WeightLayout layout;
  layout.canonical_name = canonical_name;
  return layout;
}

const weights::WeightLayout kQwen = layout_of(&models::qwen_vl::canonical_name);
const weights::WeightLayout kLlava = layout_of(&models::llava_onevision::canonical_name);

}  // namespace

TEST_CASE("a language model that changes leaves its tower's hash as it is") {
  Tensors changed = qwen();
  for (std::size_t i = 0; i < 3; ++i) changed[i].sha256 += "'";

  CHECK(tower_sha256(changed, kQwen) == tower_sha256(qwen(), kQwen));
}

TEST_CASE("bytes, type, shape and name of each tensor of a tower count") {
  const std::string hash = tower_sha256(qwen(), kQwen);
  for (std::size_t i = 3; i < 5; ++i) {
    Tensors changed = qwen();
    changed[i].sha256 += "'";
    CHECK(tower_sha256(changed, kQwen) != hash);
    changed = qwen();
    changed[i].dtype = DType::kBFloat16;
    CHECK(tower_sha256(changed, kQwen) != hash);
    changed = qwen();
    changed[i].shape.push_back(1);
    CHECK(tower_sha256(changed, kQwen) != hash);
    changed = qwen();
    changed[i].name += "_2";
    CHECK(tower_sha256(changed, kQwen) != hash);
  }
}

TEST_CASE("the generations of names give the same tower's hash") {
  Tensors native = qwen();
  for (TensorDigest& tensor : native) {
    if (tensor.name.starts_with("visual.")) tensor.name = "model." + tensor.name;
    if (tensor.name.starts_with("model.layers")) tensor.name = "model.language_" + tensor.name;
  }

  CHECK(tower_sha256(native, kQwen) == tower_sha256(qwen(), kQwen));
}

TEST_CASE("projector and newline of LLaVA-OneVision are of its tower, under all their names") {
  const Tensors hub = {
      {"language_model.model.norm.weight", DType::kFloat32, {4}, "a"},
      {"vision_tower.vision_model.encoder.layers.0.mlp.fc1.bias", DType::kFloat32, {4}, "b"},
      {"multi_modal_projector.linear_1.weight", DType::kFloat32, {4, 4}, "c"},
      {"image_newline", DType::kFloat32, {4}, "d"}};
  const std::vector<std::string> native = {
      "model.language_model.norm.weight", "model.vision_tower.encoder.layers.0.mlp.fc1.bias",
      "model.multi_modal_projector.linear_1.weight", "model.image_newline"};
  const std::string hash = tower_sha256(hub, kLlava);
  for (std::size_t i = 0; i < hub.size(); ++i) {
    Tensors changed = hub;
    changed[i].sha256 += "'";
    CHECK((tower_sha256(changed, kLlava) == hash) == (i == 0));
  }
  Tensors renamed = hub;
  for (std::size_t i = 0; i < hub.size(); ++i) renamed[i].name = native[i];

  CHECK(tower_sha256(renamed, kLlava) == hash);
}
