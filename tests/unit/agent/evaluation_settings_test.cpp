#include "agent/run/evaluation_settings.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using namespace evalcar;

TEST_CASE("the evaluator is told to share a GPU only where the configuration says so") {
  config::EvaluateSettings evaluate;
  evaluate.device = "cuda:0";
  const auto shares = [&evaluate] {
    return std::ranges::count(run::evaluator_command("evaluator", evaluate, {}), "--share-gpu");
  };

  CHECK(shares() == 0);

  evaluate.share_gpu = true;
  CHECK(shares() == 1);
}
