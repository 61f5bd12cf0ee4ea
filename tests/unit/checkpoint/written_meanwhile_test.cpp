// Whatever the layout: nothing is planned from a file that was written to while it was read.
#include <catch2/catch_test_macros.hpp>

#include "tests/unit/checkpoint/dcp_files.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

const std::string kFolder = "/run/checkpoint-5";

struct Checkpoint {
  Layout layout;
  std::string written;  // the file that a writer is at
  std::map<std::string, std::string> files;
};

std::string torch_file() {
  return make_zip(torch_parts(p_whole(p_dict({{"w", TensorText().text()}})),
                              {{"0", bytes_of<float>({1, 2, 3, 4, 5, 6})}}));
}

Checkpoint dcp(const std::string& written) {
  DcpText text;
  text.shapes = {{"w", {2}}};
  text.pieces = {{"w", {0}, {2}, "__0_0.distcp", bytes_of<float>({1, 2})}};
  const std::string metadata = text.build();
  return {Layout::kDcp,
          written,
          {{".metadata", metadata}, {"__0_0.distcp", text.data.at("__0_0.distcp")}}};
}

std::vector<Checkpoint> checkpoints() {
  const std::string numbers = bytes_of<std::int32_t>({7, 8});
  const std::string whole =
      safetensors_bytes(R"({"w":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", numbers);
  const std::string shard = safetensors_bytes(
      R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\":{\"saved_offsets\":[0]}}"},)"
      R"("w":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
      numbers);
  const std::string shard_name = "shard-00001-model-00001-of-00001.safetensors";
  const std::string rank = "pytorch_model_fsdp_0/model_world_size_1_rank_0.pt";
  const std::string optimizer = "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt";
  return {
      {Layout::kHuggingFace, "model.safetensors", {{"model.safetensors", whole}}},
      {Layout::kHuggingFace, "pytorch_model.bin", {{"pytorch_model.bin", torch_file()}}},
      {Layout::kLmmsEngineFsdp2, rank, {{rank, torch_file()}}},
      dcp(".metadata"),
      dcp("__0_0.distcp"),
      {Layout::kDcpSafetensors, shard_name, {{shard_name, shard}}},
      {Layout::kDeepspeedZero,
       optimizer,
       {{"latest", "global_step5"},
        {"global_step5/mp_rank_00_model_states.pt", torch_file()},
        {optimizer, torch_file()}}},
  };
}

}  // namespace

TEST_CASE("nothing is planned from a file that is written to while it is read") {
  for (const Checkpoint& checkpoint : checkpoints()) {
    INFO(layout_name(checkpoint.layout) << ": " << checkpoint.written);
    test::FakeClock clock;
    test::MemoryFileSystem files(clock);
    for (const auto& [name, bytes] : checkpoint.files) {
      files.put_file(join_path(kFolder, name), bytes);
    }
    files.put_file(join_path(kFolder, "config.json"), "{}");
    const auto report = inspect_layout(files, kFolder);
    REQUIRE(report.has_value());
    CHECK(report->layout == checkpoint.layout);
    const std::string written = join_path(kFolder, checkpoint.written);
    files.on_call([&](const test::Call& call) {
      if (call.operation != "read_at" || call.path != written) return;
      clock.advance(std::chrono::seconds(1));
      files.put_file(written, checkpoint.files.at(checkpoint.written));
    });

    const auto plan = make_plan(files, kFolder, WeightsKind::kRegular);

    REQUIRE_FALSE(plan.has_value());
    CHECK(plan.error().code == ErrorCode::kUnavailable);
    CHECK(plan.error().message == written + ": is being written");
  }
}
