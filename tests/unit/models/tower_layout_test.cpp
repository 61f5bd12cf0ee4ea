// Which matrices of the vision towers are marked as multiplied by many rows.
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

#include "evaluator/models/qwen2_5_vl/layout.h"
#include "evaluator/models/vit/layout.h"

using namespace evalcar;
using namespace evalcar::models;

namespace {

std::set<std::string> marked(const weights::WeightLayout& layout) {
  std::set<std::string> names;
  for (const weights::ResidentTensor& tensor : layout.residents)
    if (tensor.rows == weights::Rows::kMany) names.insert(tensor.name);
  return names;
}

// Matrices that are no embedding.
std::set<std::string> matrices(const weights::WeightLayout& layout) {
  std::set<std::string> names;
  for (const weights::ResidentTensor& tensor : layout.residents) {
    const bool embeds = tensor.name.find("embed") != std::string::npos;
    if (tensor.shape.size() == 2 && !embeds) names.insert(tensor.name);
  }
  return names;
}

}  // namespace

TEST_CASE("the matrices of a tower are marked as multiplied by many rows, its embeddings not") {
  weights::WeightLayout windowed;
  qwen2_5_vl::add_tensors(windowed,
                          {.depth = 2, .hidden = 32, .intermediate = 48, .out_hidden = 64});
  CHECK(marked(windowed) == matrices(windowed));
  CHECK(marked(windowed).contains("visual.blocks.1.mlp.gate_up_proj.weight"));

  weights::WeightLayout plain;
  vit::add_tensors(plain, {.depth = 2,
                           .hidden = 32,
                           .intermediate = 48,
                           .out_hidden = 64,
                           .names = vit::kQwen3Names,
                           .grid_side = 4,
                           .deepstack = {1}});
  CHECK(marked(plain) == matrices(plain));
  CHECK(marked(plain).contains("visual.deepstack_merger_list.0.linear_fc2.weight"));
}
