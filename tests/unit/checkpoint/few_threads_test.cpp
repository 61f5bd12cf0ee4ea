// Hashing, comparing and merging where the system gives no threads.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "store/checkpoint/diff_plans.h"
#include "store/checkpoint/merge.h"
#include "tests/unit/checkpoint/torch_files.h"
#include "tests/unit/support/without_threads.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

/// Two checkpoints of four tensors each, and a folder that everybody may write to.
class Scene {
 public:
  Scene() {
    for (const char* step : {"checkpoint-1", "checkpoint-2"}) {
      std::vector<std::pair<std::string, std::string>> entries;
      for (const char* name : {"a", "b", "c", "d"}) entries.emplace_back(name, TensorText{}.text());
      scratch.write(std::string(step) + "/pytorch_model.bin",
                    make_zip(torch_parts(p_whole(p_dict(entries)),
                                         {{"0", bytes_of<float>({1, 2, 3, 4, 5, 6})}})));
    }
    ::chmod(scratch.path().c_str(), 0777);
  }

  Plan plan(const char* step) const {
    return make_plan(files, scratch.at(step), WeightsKind::kRegular, {.weights_only = true})
        .value();
  }

  ScratchFolder scratch;
  RealFileSystem files;
};

constexpr int kThreads = 4;

}  // namespace

TEST_CASE("a plan is hashed by the caller's own thread where there is no other") {
  const Scene scene;
  const Plan plan = scene.plan("checkpoint-1");
  const auto with_threads = hash_plan(scene.files, plan, kThreads, {});
  REQUIRE(with_threads.has_value());

  const int same = test_support::without_threads([&] {
    const auto alone = hash_plan(scene.files, plan, kThreads, {});
    return alone.has_value() && weights_sha256(*alone) == weights_sha256(*with_threads) ? 1 : 0;
  });

  CHECK(same == 1);
}

TEST_CASE("two plans are compared by the caller's own thread where there is no other") {
  const Scene scene;
  const Plan one = scene.plan("checkpoint-1");
  const Plan other = scene.plan("checkpoint-2");

  const int equal = test_support::without_threads([&] {
    const auto alone =
        diff_values(scene.files, one, other, {{0, 0}, {1, 1}, {2, 2}, {3, 3}}, kThreads, {});
    return alone.has_value() && alone->size() == 4 && (*alone)[3].elements == 0 ? 1 : 0;
  });

  CHECK(equal == 1);
}

TEST_CASE("a merge is made by the caller's own thread where there is no other") {
  Scene scene;
  MergeRequest request;
  request.plans.push_back(scene.plan("checkpoint-1"));
  request.source_dirs = {scene.scratch.at("checkpoint-1")};
  request.dtype = DType::kBFloat16;
  request.threads = kThreads;
  request.output_dir = scene.scratch.at("with");
  REQUIRE(merge(scene.files, request).has_value());

  request.output_dir = scene.scratch.at("without");
  const int merged = test_support::without_threads(
      [&] { return merge(scene.files, request).has_value() ? 1 : 0; });

  CHECK(merged == 1);
  CHECK(scene.scratch.read("without/model.safetensors") ==
        scene.scratch.read("with/model.safetensors"));
}
