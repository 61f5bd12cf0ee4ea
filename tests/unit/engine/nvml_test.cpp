#include "evaluator/engine/nvml.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace evalcar;
using namespace evalcar::engine;

namespace {

/// What a library that finds this says of the GPU.
Result<GpuUse> use_where(const char* found) {
  ::setenv("FAKE_NVML", found, 1);
  const auto nvml = Nvml::open(FAKE_NVML_LIBRARY);
  if (!nvml.has_value()) return nvml.error();
  return nvml->use_of("GPU-fake");
}

}  // namespace

TEST_CASE("who computes on a GPU is told with what they hold, where the driver tells that") {
  const GpuUse use = use_where("1234:1073741824,77:").value();

  REQUIRE(use.processes.size() == 2);
  CHECK(use.processes[0].pid == 1234);
  CHECK(use.processes[0].used_bytes == 1073741824U);
  CHECK(use.processes[1].pid == 77);
  CHECK_FALSE(use.processes[1].used_bytes.has_value());
  CHECK(use.free_bytes == std::uint64_t{80} << 30U);
  CHECK_FALSE(use.lost);
  CHECK(Nvml::open(FAKE_NVML_LIBRARY)->driver_version() == "580.95");
}

TEST_CASE("a GPU that another process uses is refused by name, our own does not count") {
  const std::string own = std::to_string(::getpid());
  const Status refused = check_not_shared(
      "cuda:0", use_where((own + ":1073741824,4999999:75161927680").c_str()).value(), 1);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message.starts_with("device busy: cuda:0 is used by process " + own + " "));
  CHECK(refused.error().message.find("(1.0 GiB), 4999999 (70.0 GiB); it is waited for") !=
        std::string::npos);
  CHECK(refused.error().message.find("evaluate.share_gpu = true") != std::string::npos);

  CHECK(
      check_not_shared("cuda:0", use_where((own + ":1").c_str()).value(), ::getpid()).has_value());
  CHECK(check_not_shared("cuda:0", use_where("").value(), 1).has_value());
  ::setenv("FAKE_NVML_UNSEEN_GIB", "3", 1);
  const Status unseen = check_not_shared("cuda:0", use_where("").value(), 1);
  ::unsetenv("FAKE_NVML_UNSEEN_GIB");
  REQUIRE_FALSE(unseen.has_value());
  CHECK(unseen.error().message.find("not visible here (3.0 GiB are taken)") != std::string::npos);
  const Status many = check_not_shared(
      "cuda:0", use_where("4999991:,4999992:,4999993:,4999994:,4999995:,4999996:").value(), 1);
  CHECK(many.error().message.find("4999994 and 2 more") != std::string::npos);
}

TEST_CASE("where another agent's evaluator has the GPU, what two runs can do is told") {
  char before[16] = {};
  REQUIRE(::prctl(PR_GET_NAME, before) == 0);
  REQUIRE(::prctl(PR_SET_NAME, "evalcar-evaluator") == 0);

  const Status refused = check_not_shared(
      "cuda:0", use_where((std::to_string(::getpid()) + ":1073741824").c_str()).value(), 1);

  ::prctl(PR_SET_NAME, before);
  REQUIRE_FALSE(refused.has_value());
  const std::string& message = refused.error().message;
  CHECK(message.find(" evalcar-evaluat (1.0 GiB); it is waited for") != std::string::npos);
  CHECK(message.find("a list in watch.output_dir") != std::string::npos);
  CHECK(message.find("evaluate.keep_resident = false") != std::string::npos);
  CHECK(message.find("evaluate.share_gpu") == std::string::npos);
}

TEST_CASE("a lost GPU, a driver that does not answer and a missing library are told apart") {
  CHECK(use_where("lost")->lost);
  const auto broken = use_where("broken");
  REQUIRE_FALSE(broken.has_value());
  CHECK(broken.error().code == ErrorCode::kUnavailable);
  CHECK(broken.error().message == "NVML: start: Driver Not Loaded");
  CHECK(Nvml::open("libno-such-nvml.so").error().code == ErrorCode::kNotFound);
  ::setenv("FAKE_NVML", "", 1);
  CHECK_FALSE(Nvml::open(FAKE_NVML_LIBRARY)->use_of("GPU-other").has_value());
}

TEST_CASE("an MPS daemon is known by its pipe, in the folder that the variable names") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("evalcar-mps-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  CHECK(find_mps_pipe(folder.c_str()).empty());
  std::ofstream(folder / "control") << "";
  CHECK(find_mps_pipe(folder.c_str()) == (folder / "control").string());
  std::filesystem::remove_all(folder);
}
