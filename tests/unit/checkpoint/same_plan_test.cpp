#include "store/checkpoint/same_plan.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tests/unit/checkpoint/lora_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

Plan plan_of(const Adapter& adapter) {
  return make_plan(RealFileSystem(), adapter.scratch.at("checkpoint-5"), WeightsKind::kRegular)
      .value();
}

}  // namespace

TEST_CASE("a plan that is made again of files that nobody touched is the same one") {
  const Adapter adapter;
  adapter.write();

  CHECK(is_same_plan(plan_of(adapter), plan_of(adapter)));
}

TEST_CASE("an adapter that is scaled otherwise is another plan, though its weights are the same") {
  Adapter adapter;
  adapter.write();
  const Plan before = plan_of(adapter);

  adapter.config["lora_alpha"] = 6;
  adapter.scratch.write("checkpoint-5/adapter_config.json", adapter.config.dump());
  const Plan after = plan_of(adapter);

  CHECK(before.files.size() == after.files.size());
  CHECK_FALSE(is_same_plan(before, after));
}

TEST_CASE("a file that was linked, rewritten or replaced makes another plan") {
  const Adapter adapter;
  adapter.write();
  const Plan before = plan_of(adapter);
  const std::string path = adapter.scratch.at("checkpoint-5/adapter_model.safetensors");

  SECTION("linked: only the ctime is another") {
    std::filesystem::create_hard_link(path, adapter.scratch.at("link"));
    const Plan after = plan_of(adapter);
    REQUIRE(after.files.back().identity.same_content_identity(before.files.back().identity));
    CHECK_FALSE(is_same_plan(before, after));
  }
  SECTION("rewritten in place") {
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path) + std::chrono::milliseconds(1));
    CHECK_FALSE(is_same_plan(before, plan_of(adapter)));
  }
  SECTION("replaced by a copy") {
    std::filesystem::copy_file(path, path + ".new");
    std::filesystem::rename(path + ".new", path);
    CHECK_FALSE(is_same_plan(before, plan_of(adapter)));
  }
}

TEST_CASE("each part of a plan counts") {
  const Adapter adapter;
  adapter.write();
  const Plan plan = plan_of(adapter);
  Plan other = plan;
  TensorPlan& tensor = other.tensors.front();

  SECTION("a tensor's name") { tensor.name += "x"; }
  SECTION("its type") { tensor.dtype = DType::kBFloat16; }
  SECTION("its shape") { tensor.shape.push_back(1); }
  SECTION("its place") { tensor.pieces.front().file_offset += 4; }
  SECTION("its type in the file") { tensor.stored_dtype = DType::kFloat16; }
  SECTION("what it is the mean of") {
    tensor.mean_of = std::make_shared<const std::vector<TensorPlan>>(plan.tensors);
  }
  SECTION("a tensor more") { other.tensors.push_back(tensor); }
  SECTION("a checksum") { other.records.push_back({}); }
  SECTION("the kind of weights") { other.kind = WeightsKind::kEma; }

  CHECK_FALSE(is_same_plan(plan, other));
}
