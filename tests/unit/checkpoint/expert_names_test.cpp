#include "store/checkpoint/expert_names.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <map>
#include <memory>

#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

using Shape = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

const std::string kExperts = "model.layers.0.mlp.experts";

std::string config_of(const std::string& model_type) {
  return R"({"model_type":")" + model_type + R"("})";
}

/// Row-major from `offset` on.
TensorPlan tensor_at(const std::string& name, const Shape& shape, std::uint64_t offset = 0) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return {name,
          DType::kBFloat16,
          shape,
          {{0, offset, Shape(shape.size(), 0), shape, strides}},
          std::nullopt};
}

/// A layer of 3 experts, 4 wide inside of 5.
Plan plan_of_layer(const Names& more = {}) {
  Plan plan;
  plan.tensors = {tensor_at(kExperts + ".down_proj", {3, 5, 4}, 1000),
                  tensor_at(kExperts + ".gate_up_proj", {3, 8, 5}, 100),
                  tensor_at("model.layers.0.mlp.gate.weight", {3, 5}, 10),
                  tensor_at("model.layers.0.mlp.router.weight", {3, 5}, 10),
                  tensor_at("model.layers.0.self_attn.q_proj.weight", {5, 5}, 3000)};
  for (const std::string& name : more) plan.tensors.push_back(tensor_at(name, {5}));
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const TensorPlan& a, const TensorPlan& b) { return a.name < b.name; });
  return plan;
}

Names names_in(const Plan& plan) {
  Names names;
  for (const TensorPlan& tensor : plan.tensors) names.push_back(tensor.name);
  return names;
}

/// Where each element of a matrix lies: the byte in the file.
std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> bytes_of(const TensorPlan& tensor) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> places;
  for (const Piece& piece : tensor.pieces) {
    for (std::int64_t row = 0; row < piece.size[0]; ++row) {
      for (std::int64_t column = 0; column < piece.size[1]; ++column) {
        const std::int64_t at = row * piece.stride_elements[0] + column * piece.stride_elements[1];
        const bool is_new = places
                                .emplace(std::pair(piece.start[0] + row, piece.start[1] + column),
                                         piece.file_offset + 2 * static_cast<std::uint64_t>(at))
                                .second;
        REQUIRE(is_new);
      }
    }
  }
  REQUIRE(places.size() == tensor.elements());
  return places;
}

/// The stored tensor [3, 8, 5] cut as ranks cut it: by experts, by rows (of which one lies on both
/// sides of the middle), and by columns.
std::vector<Piece> cut_pieces(const Shape& cuts, std::size_t dimension) {
  const TensorPlan whole = tensor_at("", {3, 8, 5}, 100);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Piece piece = whole.pieces[0];
    piece.start[dimension] = cuts[i];
    piece.size[dimension] = cuts[i + 1] - cuts[i];
    piece.file_offset += 2 * static_cast<std::uint64_t>(cuts[i] * piece.stride_elements[dimension]);
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace

TEST_CASE("experts that are held together get the hub's names one by one", "[expert_names]") {
  Plan plan = plan_of_layer();
  CHECK(fused_experts_of(plan) == kExperts + ".gate_up_proj");

  REQUIRE(take_expert_names(plan, config_of("qwen3_moe"), "config.json").has_value());

  Names expected;
  for (const char* const expert : {".0", ".1", ".2"}) {
    for (const char* const name : {".down_proj", ".gate_proj", ".up_proj"}) {
      expected.push_back(kExperts + expert + name + ".weight");
    }
  }
  expected.insert(expected.end(),
                  {"model.layers.0.mlp.gate.weight", "model.layers.0.mlp.router.weight",
                   "model.layers.0.self_attn.q_proj.weight"});
  CHECK(names_in(plan) == expected);
  CHECK(fused_experts_of(plan).empty());
  CHECK(plan.find(kExperts + ".0.gate_proj.weight")->shape == Shape{4, 5});
  CHECK(plan.find(kExperts + ".0.up_proj.weight")->shape == Shape{4, 5});
  CHECK(plan.find(kExperts + ".0.down_proj.weight")->shape == Shape{5, 4});
}

TEST_CASE("each expert's rows are those of the stored tensor, however ranks cut it",
          "[expert_names]") {
  const auto [cuts, dimension] = GENERATE(
      std::pair(Shape{0, 3}, 0), std::pair(Shape{0, 1, 3}, 0), std::pair(Shape{0, 3, 5, 8}, 1),
      std::pair(Shape{0, 1, 2, 3, 4, 5, 6, 7, 8}, 1), std::pair(Shape{0, 2, 5}, 2));
  CAPTURE(cuts, dimension);
  Plan plan = plan_of_layer();
  plan.tensors[1].pieces = cut_pieces(cuts, static_cast<std::size_t>(dimension));

  REQUIRE(take_expert_names(plan, config_of("qwen3_moe"), "config.json").has_value());

  for (std::int64_t expert = 0; expert < 3; ++expert) {
    const std::string prefix = kExperts + "." + std::to_string(expert);
    for (const auto& [name, first] :
         {std::pair(".gate_proj.weight", 0), std::pair(".up_proj.weight", 4)}) {
      for (const auto& [place, byte] : bytes_of(*plan.find(prefix + name))) {
        const std::int64_t row = expert * 8 + first + place.first;
        CHECK(byte == 100 + 2 * static_cast<std::uint64_t>(row * 5 + place.second));
      }
    }
    for (const auto& [place, byte] : bytes_of(*plan.find(prefix + ".down_proj.weight"))) {
      CHECK(byte ==
            1000 + 2 * static_cast<std::uint64_t>((expert * 5 + place.first) * 4 + place.second));
    }
  }
}

TEST_CASE("Mixtral's kind has other names, around the experts, too", "[expert_names]") {
  Plan plan = plan_of_layer();

  REQUIRE(take_expert_names(plan, config_of("mixtral"), "config.json").has_value());

  const std::string sparse = "model.layers.0.block_sparse_moe.";
  CHECK(bytes_of(*plan.find(sparse + "experts.1.w1.weight")).begin()->second == 100 + 2 * 40);
  CHECK(bytes_of(*plan.find(sparse + "experts.1.w3.weight")).begin()->second == 100 + 2 * 60);
  CHECK(bytes_of(*plan.find(sparse + "experts.1.w2.weight")).begin()->second == 1000 + 2 * 20);
  CHECK(plan.find(sparse + "gate.weight") != nullptr);
  CHECK(plan.find("model.layers.0.self_attn.q_proj.weight") != nullptr);
}

TEST_CASE("the hub's stacked experts have two dimensions exchanged", "[expert_names]") {
  Plan plan = plan_of_layer();

  REQUIRE(take_expert_names(plan, config_of("qwen3_vl_moe"), "config.json").has_value());

  const TensorPlan* const gate_up = plan.find(kExperts + ".gate_up_proj");
  const TensorPlan* const down = plan.find(kExperts + ".down_proj");
  CHECK(gate_up->shape == Shape{3, 5, 8});
  CHECK(gate_up->pieces[0].size == Shape{3, 5, 8});
  CHECK(gate_up->pieces[0].stride_elements == Shape{40, 1, 5});
  CHECK(down->shape == Shape{3, 4, 5});

  SECTION("and are left alone where they are so already") {
    const Names names = names_in(plan);
    REQUIRE(take_expert_names(plan, config_of("qwen3_vl_moe"), "config.json").has_value());
    CHECK(plan.find(kExperts + ".gate_up_proj")->shape == Shape{3, 5, 8});
    CHECK(names_in(plan) == names);
  }
}

TEST_CASE("experts keep their names where the hub's cannot be told", "[expert_names]") {
  Plan plan = plan_of_layer();
  std::string model_type = "qwen3_moe";
  SECTION("of another family") { model_type = "gpt_oss"; }
  SECTION("where an adapter changes one") {
    plan.tensors[0].update = std::make_shared<const LowRankUpdate>();
  }
  SECTION("where the tensors are means") {
    plan.tensors[1].mean_of = std::make_shared<const std::vector<TensorPlan>>();
  }
  SECTION("where a large model is cut into too many parts") {
    plan.tensors[0] = tensor_at(kExperts + ".down_proj", {700'000, 5, 4});
    plan.tensors[1] = tensor_at(kExperts + ".gate_up_proj", {700'000, 8, 5});
    plan.files = {{"model.safetensors", {.size_bytes = std::uint64_t{64} << 30U}}};
  }
  SECTION("where more lies below them") {
    plan = plan_of_layer({kExperts + ".gate_up_proj_scale_inv"});
  }
  SECTION("where a new name is there already") {
    model_type = "mixtral";
    plan = plan_of_layer({"model.layers.0.block_sparse_moe.gate.weight"});
  }
  SECTION("where the module around them is not the family's") {
    model_type = "mixtral";
    for (TensorPlan& tensor : plan.tensors) {
      const std::size_t at = tensor.name.find(".mlp.");
      if (at != std::string::npos) tensor.name.replace(at, 5, ".moe.");
    }
  }
  SECTION("where only one of the two tensors is there") {
    plan.tensors.erase(plan.tensors.begin());
  }
  SECTION("where transformers 5 would not see that dimensions are exchanged") {
    model_type = "qwen3_vl_moe";
    plan.tensors[0] = tensor_at(kExperts + ".down_proj", {3, 8, 4});
    plan.tensors[1] = tensor_at(kExperts + ".gate_up_proj", {3, 8, 8});
  }
  SECTION("where their shapes do not belong together") {
    plan.tensors[0] = tensor_at(kExperts + ".down_proj", {3, 5, 3});
  }
  const Names names = names_in(plan);
  const Shape strides = plan.tensors[0].pieces[0].stride_elements;

  REQUIRE(take_expert_names(plan, config_of(model_type), "config.json").has_value());

  CHECK(names_in(plan) == names);
  CHECK(plan.tensors[0].pieces[0].stride_elements == strides);
}

TEST_CASE("experts of which the files have too few bytes are refused by name", "[expert_names]") {
  Plan plan = plan_of_layer();
  const std::string module = GENERATE(std::string("m"), std::string(4'000, 'm')) + ".experts.";
  plan.tensors = {tensor_at(module + "down_proj", {66'000, 1, 1}),
                  tensor_at(module + "gate_up_proj", {66'000, 2, 1})};
  plan.files = {{"model.safetensors", {.size_bytes = 800'000}}};

  const Status done = take_expert_names(plan, config_of("qwen3_moe"), "config.json");

  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code == ErrorCode::kCorruption);
  CHECK(done.error().message.find("[66000, 2, 1]: an expert of its layer") != std::string::npos);
}

TEST_CASE("experts that are converted while they are read lie where the stored ones do",
          "[expert_names]") {
  Plan plan = plan_of_layer();
  plan.tensors[1].stored_dtype = DType::kFloat32;

  REQUIRE(take_expert_names(plan, config_of("qwen3_moe"), "config.json").has_value());

  const TensorPlan* const up = plan.find(kExperts + ".2.up_proj.weight");
  CHECK(up->stored_dtype == DType::kFloat32);
  CHECK(up->dtype == DType::kBFloat16);
  CHECK(up->pieces[0].file_offset == 100 + 4 * (2 * 40 + 20));
}

TEST_CASE("the text model of another family says what its experts are called", "[expert_names]") {
  Plan plan = plan_of_layer();
  const std::string config =
      R"({"model_type":"internvl","text_config":{"model_type":"qwen3_moe"},"vision_config":{"model_type":"mixtral"}})";

  REQUIRE(take_expert_names(plan, config, "config.json").has_value());

  CHECK(plan.find(kExperts + ".2.up_proj.weight") != nullptr);
}

TEST_CASE("a configuration that is no object says nothing", "[expert_names]") {
  Plan plan = plan_of_layer();
  const Names names = names_in(plan);
  const std::string config = GENERATE("5", "\"x\"", "null", "[\"model_type\"]");
  CHECK(take_expert_names(plan, config, "config.json").has_value());
  CHECK(names_in(plan) == names);
}

TEST_CASE("a configuration that is no JSON is named", "[expert_names]") {
  Plan plan = plan_of_layer();
  const Status done = take_expert_names(plan, "{\"model_type\":", "run/config.json");
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().message.find("run/config.json") != std::string::npos);
}
