#include "store/checkpoint/dcp_names.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::checkpoint;

namespace {

using Names = std::vector<std::optional<std::string>>;

Names names_of(const std::vector<DcpPath>& paths) { return dcp_weight_names(paths).of; }

std::vector<std::string> left_out(const std::vector<DcpPath>& paths) {
  return dcp_weight_names(paths).left_out;
}

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

TEST_CASE("an optimizer is known by its content, whatever it is called") {
  CHECK(names_of({{"net", "w"}, {"opt", "state", "w", "exp_avg"}, {"opt", "param_groups", "0"}}) ==
        Names{"net.w", std::nullopt, std::nullopt});
  CHECK(names_of({{"net", "w"}, {"adam", "state.w.exp_avg"}, {"adam", "param_groups.w.lr"}}) ==
        Names{"net.w", std::nullopt, std::nullopt});
  // Trees of modules that are called like one of an optimizer's.
  CHECK(names_of({{"a", "state", "w"}, {"b", "w"}}) == Names{"a.state.w", "b.w"});
  CHECK(names_of({{"a", "state", "exp_avg"}, {"a", "w"}, {"b", "w"}}) ==
        Names{"a.state.exp_avg", "a.w", "b.w"});
  CHECK(names_of({{"a", "state", "w", "sum"}, {"a", "w"}, {"b", "w"}}) ==
        Names{"a.state.w.sum", "a.w", "b.w"});
}

TEST_CASE("trees of trainers are known by whole names") {
  CHECK(names_of({{"rng_proj", "weight"}, {"head", "weight"}, {"optimizer_0", "x"}}) ==
        Names{"rng_proj.weight", "head.weight", std::nullopt});
  CHECK(names_of({{"optimus", "weight"}, {"scheduler_net", "weight"}, {"rng_state", "cpu"}}) ==
        Names{"optimus.weight", "scheduler_net.weight", std::nullopt});
}

TEST_CASE("the model is found however deep it lies alone") {
  CHECK(names_of({{"app", "state", "model", "a"},
                  {"app", "state", "optimizer", "state", "a", "exp_avg"}}) ==
        Names{"a", std::nullopt});
  CHECK(names_of({{"a", "b", "c", "d", "model", "w"}, {"a", "b", "rng", "x"}}) ==
        Names{"w", std::nullopt});
  CHECK(names_of({{"app", "net", "w"}, {"app", "optim", "state", "w", "exp_avg"}}) ==
        Names{"app.net.w", std::nullopt});
}

TEST_CASE("what lies beside the model and is no state of a trainer is told") {
  CHECK(left_out({{"model", "w"},
                  {"ema", "w"},
                  {"value_head", "w"},
                  {"value_head", "b"},
                  {"optimizer", "state", "w"},
                  {"opt2", "state", "w", "exp_avg"},
                  {"step"},
                  {"loose"}}) == std::vector<std::string>{"ema", "loose", "value_head"});
  CHECK(left_out({{"app", "model", "w"}, {"app", "ema", "w"}}) ==
        std::vector<std::string>{"app.ema"});
  CHECK(left_out({{"policy", "w"}, {"value_head", "w"}}).empty());
}

TEST_CASE("names of wrappers are left to the plan, which strips them of every layout") {
  CHECK(names_of({{"model", "module.a"}, {"model", "_orig_mod.b"}}) ==
        Names{"module.a", "_orig_mod.b"});
}
