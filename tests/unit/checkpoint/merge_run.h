// A run of two checkpoints in memory, to be merged.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "store/checkpoint/merge.h"
#include "tests/unit/checkpoint/support.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

namespace evalcar::checkpoint::testing {

/// /run/checkpoint-5 and -6: "a" [2,2] float32, "b" [3] int64, "c" [] float32.
class Run {
 public:
  Run() : files(clock) {
    put(5, {1, 2, 3, 4}, 10);
    put(6, {3, 4, 5, 8}, 20);
  }
  void put(int step, const std::vector<float>& a, std::int64_t b) {
    const std::string data =
        bytes_of<std::int64_t>({b, b, b}) + bytes_of(a) + bytes_of<float>({0.5F});
    files.put_file(folder(step) + "/model.safetensors",
                   safetensors_bytes(R"({"b":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},)"
                                     R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]},)"
                                     R"("c":{"dtype":"F32","shape":[],"data_offsets":[40,44]}})",
                                     data));
    files.put_file(folder(step) + "/config.json", R"({"dtype":"float32","hidden_size":2})");
    files.put_file(folder(step) + "/tokenizer.json", "{}");
    files.put_file(folder(step) + "/optimizer.pt", "not copied");
  }
  static std::string folder(int step) { return "/run/checkpoint-" + std::to_string(step); }
  MergeRequest request(const std::vector<int>& steps = {5}) {
    MergeRequest request;
    for (const int step : steps) {
      request.plans.push_back(make_plan(files, folder(step), WeightsKind::kRegular).value());
      request.source_dirs.push_back(folder(step));
    }
    request.output_dir = "/out/merged";
    request.threads = 1;
    return request;
  }
  std::string merged(std::string_view name) {
    const auto plan = make_plan(files, "/out/merged", WeightsKind::kRegular);
    REQUIRE(plan.has_value());
    return tensor_of(files, *plan, name);
  }

  test::FakeClock clock;
  test::MemoryFileSystem files;
};

inline const std::vector<std::string> kMergedTree = {
    "merged/", "merged/config.json", "merged/model.safetensors", "merged/tokenizer.json"};

}  // namespace evalcar::checkpoint::testing
