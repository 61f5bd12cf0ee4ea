#include "store/checkpoint/torchtitan_names.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <random>

#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

using Names = std::vector<std::string>;
using Position = std::pair<std::int64_t, std::int64_t>;

const std::string kLlama =
    R"({"model_type":"llama","num_attention_heads":4,"num_key_value_heads":2})";
const std::string kQwen3 =
    R"({"model_type":"qwen3","num_attention_heads":4,"num_key_value_heads":2})";

TensorPlan whole_tensor(const std::string& name, std::vector<std::int64_t> shape) {
  const std::int64_t columns = shape.size() > 1 ? shape[1] : 1;
  const std::vector<std::int64_t> strides =
      shape.size() > 1 ? std::vector<std::int64_t>{columns, 1} : std::vector<std::int64_t>{1};
  const std::vector<std::int64_t> zeros(shape.size(), 0);
  return {name, DType::kBFloat16, shape, {{0, 0, zeros, shape, strides}}, std::nullopt};
}

/// One layer, in order of the names; `attention` is what comes before the projections.
Plan plan_of_layer(const std::string& attention = "attention.", const Names& more = {}) {
  Plan plan;
  for (const std::string& name : more) plan.tensors.push_back(whole_tensor(name, {64}));
  for (const auto& [name, rows] :
       std::map<std::string, std::int64_t>{{"layers.0." + attention + "wq.weight", 64},
                                           {"layers.0." + attention + "wk.weight", 32},
                                           {"layers.0." + attention + "wv.weight", 32},
                                           {"layers.0.attention.wo.weight", 64},
                                           {"layers.0.attention_norm.weight", 1},
                                           {"layers.0.feed_forward.w1.weight", 96},
                                           {"layers.0.feed_forward.w2.weight", 64},
                                           {"layers.0.feed_forward.w3.weight", 96},
                                           {"layers.0.ffn_norm.weight", 1},
                                           {"norm.weight", 1},
                                           {"output.weight", 100},
                                           {"tok_embeddings.weight", 100}}) {
    plan.tensors.push_back(whole_tensor(name, {rows, 64}));
  }
  return plan;
}

Names names_in(const Plan& plan) {
  Names names;
  for (const TensorPlan& tensor : plan.tensors) names.push_back(tensor.name);
  return names;
}

const Names kDense = {"lm_head.weight",
                      "model.embed_tokens.weight",
                      "model.layers.0.input_layernorm.weight",
                      "model.layers.0.mlp.down_proj.weight",
                      "model.layers.0.mlp.gate_proj.weight",
                      "model.layers.0.mlp.up_proj.weight",
                      "model.layers.0.post_attention_layernorm.weight",
                      "model.layers.0.self_attn.k_proj.weight",
                      "model.layers.0.self_attn.o_proj.weight",
                      "model.layers.0.self_attn.q_proj.weight",
                      "model.layers.0.self_attn.v_proj.weight",
                      "model.norm.weight"};

/// Where each element lies, by its place in the tensor: the byte in the file.
std::map<Position, std::uint64_t> bytes_of_elements(const TensorPlan& tensor) {
  std::map<Position, std::uint64_t> places;
  for (const Piece& piece : tensor.pieces) {
    for (std::int64_t row = 0; row < piece.size[0]; ++row) {
      for (std::int64_t column = 0; column < piece.size[1]; ++column) {
        const std::int64_t at = row * piece.stride_elements[0] + column * piece.stride_elements[1];
        const bool is_new =
            places
                .emplace(Position{piece.start[0] + row, piece.start[1] + column},
                         (piece.file << 32U) + piece.file_offset +
                             static_cast<std::uint64_t>(at) * dtype_size(tensor.dtype))
                .second;
        CHECK(is_new);
      }
    }
  }
  return places;
}

/// [rows, columns], cut at random rows and columns into pieces of files of their own, some of them
/// stored by columns.
TensorPlan tensor_in_pieces(std::mt19937& random, std::int64_t rows, std::int64_t columns) {
  TensorPlan tensor{"t", DType::kBFloat16, {rows, columns}, {}, std::nullopt};
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random);
  };
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t height = up_to(rows - row);
    for (std::int64_t column = 0; column < columns;) {
      const std::int64_t width = up_to(columns - column);
      const bool by_columns = random() % 2 == 0;
      tensor.pieces.push_back({tensor.pieces.size(),
                               static_cast<std::uint64_t>(up_to(100)),
                               {row, column},
                               {height, width},
                               by_columns ? std::vector<std::int64_t>{1, height}
                                          : std::vector<std::int64_t>{width, 1}});
      column += width;
    }
    row += height;
  }
  return tensor;
}

}  // namespace

TEST_CASE("pairs of rows are split whatever pieces the tensor lies in") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const std::int64_t heads = 1 + static_cast<std::int64_t>(random() % 4);
    const std::int64_t half = 1 + static_cast<std::int64_t>(random() % 6);
    TensorPlan tensor = tensor_in_pieces(random, heads * 2 * half, 5);
    const auto before = bytes_of_elements(tensor);

    split_pairs_of_rows(tensor, heads);

    const auto after = bytes_of_elements(tensor);
    REQUIRE(after.size() == before.size());
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t pair = 0; pair < half; ++pair) {
        for (std::int64_t column = 0; column < 5; ++column) {
          const std::int64_t first = head * 2 * half;
          REQUIRE(after.at({first + pair, column}) == before.at({first + 2 * pair, column}));
          REQUIRE(after.at({first + half + pair, column}) ==
                  before.at({first + 2 * pair + 1, column}));
        }
      }
    }
    CHECK(check_tiling(tensor).has_value());
  }
}

TEST_CASE("a Llama gets transformers' names, and its queries and keys their order of rows") {
  for (const char* attention : {"attention.", "attention.qkv_linear."}) {
    CAPTURE(attention);
    Plan plan = plan_of_layer(attention);

    REQUIRE(take_torchtitan_names(plan, kLlama, "config.json").has_value());

    CHECK(names_in(plan) == kDense);
    for (const TensorPlan& tensor : plan.tensors) {
      CAPTURE(tensor.name);
      std::size_t pieces = 1;
      if (tensor.name.ends_with("q_proj.weight")) pieces = 8;
      if (tensor.name.ends_with("k_proj.weight")) pieces = 4;
      CHECK(tensor.pieces.size() == pieces);
    }
  }
}

TEST_CASE("a Qwen3 has norms of its own, and rows that stay") {
  const Names norms = {"layers.0.attention.k_norm.weight", "layers.0.attention.q_norm.weight"};
  Plan plan = plan_of_layer("attention.", norms);

  REQUIRE(take_torchtitan_names(plan, kQwen3, "config.json").has_value());

  CHECK(plan.find("model.layers.0.self_attn.k_norm.weight") != nullptr);
  CHECK(plan.find("model.layers.0.self_attn.q_norm.weight") != nullptr);
  REQUIRE(plan.find("model.layers.0.self_attn.q_proj.weight") != nullptr);
  CHECK(plan.find("model.layers.0.self_attn.q_proj.weight")->pieces.size() == 1);
}

TEST_CASE("a model in a module of another is the same") {
  Plan plan = plan_of_layer();
  for (TensorPlan& tensor : plan.tensors) tensor.name = "model." + tensor.name;

  REQUIRE(take_torchtitan_names(plan, kLlama, "config.json").has_value());

  CHECK(names_in(plan) == kDense);
}

TEST_CASE("names stay where the configuration or one of them is of something else") {
  const Names norm = {"layers.0.attention.q_norm.weight"};
  const Names mixture = {"layers.0.moe.router.gate.weight"};
  const Names both_heads = {"lm_head.weight"};
  for (const auto& [more, config] : std::vector<std::pair<Names, std::string>>{
           {{}, R"({"model_type":"mistral","num_attention_heads":4})"},
           {{}, "{}"},
           {norm, kLlama},
           {mixture, kQwen3},
           {both_heads, kLlama}}) {
    CAPTURE(config, more);
    Plan plan = plan_of_layer("attention.", more);
    const Names before = names_in(plan);

    REQUIRE(take_torchtitan_names(plan, config, "config.json").has_value());

    CHECK(names_in(plan) == before);
    CHECK(has_torchtitan_names(plan));
  }
}

TEST_CASE("heads that the rows are not of are refused by tensor and configuration") {
  for (const std::string heads :
       {R"("num_attention_heads":3)", R"("num_attention_heads":64)", R"("num_attention_heads":0)",
        R"("num_key_value_heads":2)", R"("num_attention_heads":18446744073709551615)",
        R"("num_attention_heads":4,"num_key_value_heads":32)"}) {
    CAPTURE(heads);
    Plan plan = plan_of_layer();

    const Status taken =
        take_torchtitan_names(plan, R"({"model_type":"llama",)" + heads + "}", "there/config.json");

    REQUIRE_FALSE(taken.has_value());
    CHECK(taken.error().code == ErrorCode::kCorruption);
    CHECK(taken.error().message.find("there/config.json") != std::string::npos);
    CHECK(taken.error().message.find("layers.0.attention.w") != std::string::npos);
  }
  Plan plan = plan_of_layer();
  CHECK_FALSE(take_torchtitan_names(plan, "{", "config.json").has_value());
}

TEST_CASE("heads of a few bytes make no plan that is larger than the file") {
  Plan plan = plan_of_layer();
  for (TensorPlan& tensor : plan.tensors) {
    if (tensor.name.ends_with("wq.weight")) tensor = whole_tensor(tensor.name, {1 << 20, 1});
    if (tensor.name.ends_with("wk.weight")) tensor = whole_tensor(tensor.name, {1 << 20, 1});
  }

  const Status taken = take_torchtitan_names(
      plan, R"({"model_type":"llama","num_attention_heads":131072})", "config.json");

  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().message.find("more than a model has") != std::string::npos);
}

TEST_CASE("a single row keeps whatever stride its file states") {
  TensorPlan tensor{"t", DType::kFloat32, {16, 4}, {}, std::nullopt};
  for (std::int64_t row = 0; row < 16; ++row) {
    tensor.pieces.push_back({0, 0, {row, 0}, {1, 4}, {INT64_MAX, 1}});
  }

  split_pairs_of_rows(tensor, 2);

  CHECK(tensor.pieces.size() == 16);
  for (const Piece& piece : tensor.pieces) CHECK(piece.stride_elements[0] == INT64_MAX);
}
