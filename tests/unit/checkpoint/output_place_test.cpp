#include "store/checkpoint/output_place.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/checkpoint/support.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

/// /run with the final model and checkpoint-500 in it; /model, a checkpoint by its content alone.
struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};

  Disk() {
    const std::string weights = safetensors_bytes(
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", bytes_of<float>({1}));
    for (const char* folder : {"/run", "/model"}) {
      files.put_file(std::string(folder) + "/model.safetensors", weights);
      files.put_file(std::string(folder) + "/config.json", "{}");
    }
    files.put_directory("/run/checkpoint-500");
    files.put_directory("/copied/checkpoint-7");
    files.put_directory("/empty");
  }
  bool allowed(const std::string& path, OutputUse use = OutputUse::kFilled) const {
    const Status place = check_output_place(files, path, use);
    if (!place.has_value()) {
      CHECK(place.error().code == ErrorCode::kInvalidArgument);
      CHECK(place.error().message.find("choose") != std::string::npos);
    }
    return place.has_value();
  }
};

}  // namespace

TEST_CASE("no output is put into a checkpoint, whether its name or its content tells") {
  const Disk disk;
  for (const char* place :
       {"/run/checkpoint-500", "/run/checkpoint-500/evalcar_results", "/run/checkpoint-500/a/b/",
        "/copied/checkpoint-7/x", "/model", "/model/evalcar_results", "/model/deep/er"}) {
    INFO(place);
    CHECK_FALSE(disk.allowed(place));
  }
  CHECK_FALSE(disk.allowed("/model/plot.svg", OutputUse::kReplaced));
  CHECK(disk.allowed("/model", OutputUse::kReplaced));  // a merged folder that is made anew
}

TEST_CASE("no name beside checkpoints begins with checkpoint") {
  const Disk disk;
  for (const char* place : {"/run/checkpoint-500-eval", "/run/checkpoints", "/run/checkpoint.svg",
                            "/run/checkpoint-best/x"}) {
    INFO(place);
    CHECK_FALSE(disk.allowed(place, OutputUse::kReplaced));
  }
  CHECK(disk.allowed("/empty/checkpoint-500-eval"));
}

TEST_CASE("a run folder takes results, also when the final model was saved into it") {
  const Disk disk;
  for (const char* place : {"/run/_evalcar", "/run/evalcar_results", "/run", "/elsewhere/new"}) {
    INFO(place);
    CHECK(disk.allowed(place));
  }
}
