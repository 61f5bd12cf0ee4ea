#include "store/checkpoint/output_place.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/checkpoint/support.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

/// /run with the final model and checkpoint-500 in it; /model, a checkpoint by its content alone;
/// /epochs, /states and /watched: the final model, and what shows that it is a run's folder.
struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};

  Disk() {
    for (const char* folder : {"/run", "/model", "/epochs", "/epochs/epoch_1", "/states",
                               "/watched", "/sentences", "/sentences/2_Dense", "/shards"}) {
      put_model(folder);
    }
    files.put_file("/states/my-step-20/model.safetensors", weights());
    files.put_file("/states/my-step-20/random_states_0.pkl", "");
    files.put_directory("/watched/_evalcar");
    files.put_file("/shards/pytorch_model_fsdp_0/.metadata", "");
    files.put_file("/shards/optimizer_0/.metadata", "");
    files.put_directory("/run/checkpoint-500");
    files.put_directory("/copied/checkpoint-7");
    files.put_directory("/empty");
    files.put_file("/stray/model.safetensors", weights());
    files.put_directory("/stray/runs/r1/checkpoint-5");
    files.put_directory("/of_a_run/checkpoint-2024/r1/checkpoint-5");
    put_model("/stray/final");
    files.put_directory("/stray/final/checkpoint-5");
  }
  static std::string weights() {
    return safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                             bytes_of<float>({1}));
  }
  void put_model(const std::string& folder) {
    files.put_file(folder + "/model.safetensors", weights());
    files.put_file(folder + "/config.json", "{}");
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
  for (const char* place :
       {"/run/_evalcar", "/run/evalcar_results", "/run", "/elsewhere/new", "/epochs/merged",
        "/epochs/_evalcar/merged/1", "/states/merged", "/watched/merged", "/watched"}) {
    INFO(place);
    CHECK(disk.allowed(place));
  }
}

TEST_CASE("in a run folder with the final model its checkpoints stay closed") {
  const Disk disk;
  for (const char* place : {"/run/checkpoint-500/merged", "/epochs/epoch_1/merged",
                            "/epochs/epoch_1", "/states/my-step-20/a/b"}) {
    INFO(place);
    CHECK_FALSE(disk.allowed(place));
  }
}

TEST_CASE("parts of a checkpoint do not make it a run folder") {
  const Disk disk;
  CHECK_FALSE(disk.allowed("/sentences/merged"));
  CHECK_FALSE(disk.allowed("/shards/merged"));
}

TEST_CASE("the outermost checkpoint lies within the run folder that holds the final model") {
  const Disk disk;
  CHECK(outermost_checkpoint(disk.files, "/epochs/epoch_1") == "/epochs/epoch_1");
  CHECK(outermost_checkpoint(disk.files, "/states/my-step-20") == "/states/my-step-20");
  CHECK(outermost_checkpoint(disk.files, "/run/checkpoint-500") == "/run/checkpoint-500");
  CHECK(outermost_checkpoint(disk.files, "/shards/pytorch_model_fsdp_0") == "/shards");
}

TEST_CASE("what lies above a run folder does not make it a part of a checkpoint") {
  const Disk disk;
  for (const char* folder :
       {"/stray/runs/r1/checkpoint-5", "/of_a_run/checkpoint-2024/r1/checkpoint-5", "/stray/final",
        "/stray/final/checkpoint-5"}) {
    CHECK(outermost_checkpoint(disk.files, folder) == folder);
  }
  CHECK(disk.allowed("/stray/runs/r1/_evalcar/merged/5/regular"));
  CHECK(disk.allowed("/of_a_run/checkpoint-2024/r1/merged"));
  CHECK_FALSE(disk.allowed("/of_a_run/checkpoint-2024/r1/checkpoint-5/merged"));
}
