#include "store/checkpoint/dcp_names.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::checkpoint;

namespace {

using Names = std::vector<std::optional<std::string>>;

Names names_of(const std::vector<DcpPath>& paths) { return dcp_weight_names(paths); }

}  // namespace

TEST_CASE("a tree of the model is the weights, and its name goes") {
  CHECK(names_of({{"model", "layers.0.q"}, {"optimizer", "state", "x"}, {"loose"}}) ==
        Names{"layers.0.q", std::nullopt, std::nullopt});
  CHECK(names_of({{"state_dict", "model.a"}, {"rng_state"}}) == Names{"model.a", std::nullopt});
  CHECK(names_of({{"app", "model", "a"}, {"app", "optim", "state", "a"}}) ==
        Names{"a", std::nullopt});
  CHECK(names_of({{"model", "list", "0", "x"}}) == Names{"list.0.x"});
}

TEST_CASE("without such a tree names are as stored, but for a trainer's own trees") {
  CHECK(names_of({{"model.layers.0.q"}, {"lm_head.weight"}}) ==
        Names{"model.layers.0.q", "lm_head.weight"});
  CHECK(
      names_of({{"layers.0.q"}, {"optimizer", "x"}, {"lr_scheduler", "y"}, {"train_state", "z"}}) ==
      Names{"layers.0.q", std::nullopt, std::nullopt, std::nullopt});
  CHECK(names_of({{"encoder", "x"}, {"decoder", "y"}}) == Names{"encoder.x", "decoder.y"});
  CHECK(names_of({{"encoder", "x"}}) == Names{"encoder.x"});
  CHECK(names_of({{"rng_embedding.weight"}, {"optimus.bias"}}) ==
        Names{"rng_embedding.weight", "optimus.bias"});
}

TEST_CASE("names of wrappers are left to the plan, which strips them of every layout") {
  CHECK(names_of({{"model", "module.a"}, {"model", "_orig_mod.b"}}) ==
        Names{"module.a", "_orig_mod.b"});
}
