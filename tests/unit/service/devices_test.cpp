// Whom the evaluator would take its device from. Who computes on a GPU is nvml_test.cpp's.
#include "evaluator/service/devices.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace evalcar;
using namespace evalcar::service;

namespace {

/// The folder of an MPS daemon's pipe for this process, as CUDA_MPS_PIPE_DIRECTORY names it.
class MpsFolder {
 public:
  MpsFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("evalcar-mps-devices-" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(path_);
    ::setenv("CUDA_MPS_PIPE_DIRECTORY", path_.c_str(), 1);
  }
  ~MpsFolder() {
    ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    std::filesystem::remove_all(path_);
  }
  MpsFolder(const MpsFolder&) = delete;
  MpsFolder& operator=(const MpsFolder&) = delete;

  void start_daemon() const { std::ofstream(path_ / "control") << ""; }
  std::string pipe() const { return (path_ / "control").string(); }

 private:
  std::filesystem::path path_;
};

engine::DeviceDescription gpu() {
  return {.device = "cuda:0",
          .name = "a GPU that no machine has",
          .warning = "",
          .torch_version = "",
          .uuid = "GPU-no-such-one"};
}

}  // namespace

TEST_CASE("a GPU behind CUDA MPS is refused, with the pipe and what can be done") {
  const MpsFolder mps;
  mps.start_daemon();
  std::ostringstream said;

  const Status refused = check_device_is_free(gpu(), false, said);

  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message.starts_with("device busy: an MPS daemon serves the GPUs here"));
  CHECK(refused.error().message.find(mps.pipe()) != std::string::npos);
  CHECK(refused.error().message.find("evaluate.share_gpu = true") != std::string::npos);
}

TEST_CASE("a GPU behind CUDA MPS is taken when told") {
  const MpsFolder mps;
  mps.start_daemon();
  std::ostringstream said;

  CHECK(check_device_is_free(gpu(), true, said).has_value());
  CHECK(said.str().empty());
}

TEST_CASE("without an MPS daemon its folder refuses nothing, and the CPU minds none") {
  const MpsFolder mps;
  std::ostringstream said;

  CHECK(check_device_is_free(gpu(), false, said).has_value());
  CHECK(said.str().find("cuda:0: whether other processes use it cannot be told") !=
        std::string::npos);
  mps.start_daemon();
  CHECK(check_device_is_free({}, false, said).has_value());
}
