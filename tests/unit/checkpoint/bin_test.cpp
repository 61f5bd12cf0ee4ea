#include <catch2/catch_test_macros.hpp>

#include "tests/unit/checkpoint/torch_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

const std::string kFloats = bytes_of<float>({1, 2, 3, 4, 5, 6});

std::string torch_file(const std::vector<std::pair<std::string, std::string>>& entries,
                       const std::string& storage = kFloats) {
  return make_zip(torch_parts(p_whole(p_dict(entries)), {{"0", storage}}));
}

/// checkpoint-5 with these files and a configuration.
void write_checkpoint(const ScratchFolder& scratch,
                      const std::vector<std::pair<std::string, std::string>>& contents) {
  scratch.write("checkpoint-5/config.json", "{}");
  for (const auto& [name, content] : contents) scratch.write("checkpoint-5/" + name, content);
}

Result<LayoutReport> report_of(const ScratchFolder& scratch) {
  return inspect_layout(RealFileSystem(), scratch.at("checkpoint-5"));
}

Result<Plan> plan_of(const ScratchFolder& scratch) {
  return make_plan(RealFileSystem(), scratch.at("checkpoint-5"), WeightsKind::kRegular);
}

const std::string kIndex =
    R"({"metadata":{"total_size":48},"weight_map":{"a":"pytorch_model-00001-of-00002.bin",)"
    R"("b":"pytorch_model-00002-of-00002.bin"}})";

}  // namespace

TEST_CASE("a pytorch_model.bin is read, transposed tensors and ties too, and no extra state") {
  const ScratchFolder scratch;
  const TensorText plain;
  const TensorText transposed{.size = {3, 2}, .stride = {1, 3}};
  write_checkpoint(scratch, {{"pytorch_model.bin", torch_file({{"w", plain.text()},
                                                               {"tied", plain.text()},
                                                               {"t", transposed.text()},
                                                               {"m._extra_state", "N"}})}});

  const auto report = report_of(scratch);
  REQUIRE(report.has_value());
  CHECK(report->layout == Layout::kHuggingFace);
  CHECK(report->kinds[0].completeness == Completeness::kComplete);
  CHECK(report->kinds[0].files == std::vector<std::string>{"pytorch_model.bin", "config.json"});
  const auto plan = plan_of(scratch);
  REQUIRE(plan.has_value());
  REQUIRE(plan->tensors.size() == 3);
  CHECK(tensor_of(*plan, "w") == kFloats);
  CHECK(tensor_of(*plan, "t") == bytes_of<float>({1, 4, 2, 5, 3, 6}));
  CHECK(plan->find("w")->tied_to == std::optional<std::size_t>{1});  // sorted: t, tied, w
  CHECK_FALSE(plan->find("t")->tied_to.has_value());
  CHECK(plan->records.size() == 1);
}

TEST_CASE("a Parameter that was given attributes is read by its elements, whatever those are") {
  const auto marked = [](const std::vector<std::string>& arguments) {
    return p_call(p_global("torch._utils", "_rebuild_parameter_with_state"), p_tuple(arguments));
  };
  const std::string attributes = p_dict({{"partition_dim", p_int(0)}, {"deep", "]"}});
  const ScratchFolder scratch;
  write_checkpoint(
      scratch,
      {{"pytorch_model.bin",
        torch_file({{"w", marked({TensorText{}.text(), "\x88", p_ordered_dict(), attributes})}})}});
  const auto plan = plan_of(scratch);
  REQUIRE(plan.has_value());
  CHECK(tensor_of(*plan, "w") == kFloats);

  write_checkpoint(
      scratch, {{"pytorch_model.bin", torch_file({{"w", marked({TensorText{}.text(), "\x88"})}})}});
  const auto refused = plan_of(scratch);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message.find("a Parameter of 2 arguments, expected 4") !=
        std::string::npos);
}

TEST_CASE(
    "an expanded tensor is refused by name, but one that is expanded to a single row is none") {
  const ScratchFolder scratch;
  const TensorText row{.size = {1, 6}, .stride = {0, 1}};
  const TensorText rows{.size = {2, 3}, .stride = {0, 1}};
  write_checkpoint(scratch, {{"pytorch_model.bin", torch_file({{"row", row.text()}})}});
  const auto plan = plan_of(scratch);
  REQUIRE(plan.has_value());
  CHECK(tensor_of(*plan, "row") == kFloats);

  write_checkpoint(scratch, {{"pytorch_model.bin", torch_file({{"rows", rows.text()}})}});
  const auto refused = plan_of(scratch);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  CHECK(refused.error().message.find("tensor \"rows\" is a view that overlaps itself") !=
        std::string::npos);
}

TEST_CASE("a storage that is referred to in another form than torch.save's is refused") {
  const auto storage = [](const std::vector<std::string>& parts) { return p_tuple(parts) + "Q"; };
  const std::string type = p_global("torch", "FloatStorage");
  const std::string six = p_int(6);
  for (const std::string& reference : std::vector<std::string>{
           storage({p_text("storage"), type, p_text("0"), p_text("cpu")}),
           storage({p_text("storage"), type, p_text("0"), p_text("cpu"), six, "N"}),
           storage({p_text("module"), type, p_text("0"), p_text("cpu"), six}),
           storage({p_text("storage"), p_text("FloatStorage"), p_text("0"), p_text("cpu"), six}),
           storage({p_text("storage"), type, p_int(0), p_text("cpu"), six}),
           storage({p_text("storage"), type, p_text("0"), p_text("cpu"), p_int(-6)}),
           p_text("storage") + "Q"}) {
    const std::string tensor = p_call(
        p_global("torch._utils", "_rebuild_tensor_v2"),
        p_tuple({reference, p_int(0), p_ints({2, 3}), p_ints({3, 1}), "\x89", p_ordered_dict()}));
    const ScratchFolder scratch;
    write_checkpoint(scratch, {{"pytorch_model.bin", torch_file({{"w", tensor}})}});
    const auto plan = plan_of(scratch);
    REQUIRE_FALSE(plan.has_value());
    CHECK(plan.error().code == ErrorCode::kCorruption);
    CHECK(plan.error().message.find("tensor \"w\" has a storage reference of another form") !=
          std::string::npos);
  }
}

TEST_CASE("indexed .bin shards are listed with their index, and each tensor has its file") {
  const ScratchFolder scratch;
  const std::string second = bytes_of<float>({7, 8, 9, 10, 11, 12});
  write_checkpoint(
      scratch,
      {{"pytorch_model.bin.index.json", kIndex},
       {"pytorch_model-00001-of-00002.bin", torch_file({{"a", TensorText().text()}})},
       {"pytorch_model-00002-of-00002.bin", torch_file({{"b", TensorText().text()}}, second)}});

  const auto report = report_of(scratch);
  REQUIRE(report.has_value());
  CHECK(report->kinds[0].files == std::vector<std::string>{"pytorch_model-00001-of-00002.bin",
                                                           "pytorch_model-00002-of-00002.bin",
                                                           "pytorch_model.bin.index.json",
                                                           "config.json"});
  const auto plan = plan_of(scratch);
  REQUIRE(plan.has_value());
  CHECK(tensor_of(*plan, "a") == kFloats);
  CHECK(tensor_of(*plan, "b") == second);
}

TEST_CASE("a .bin checkpoint that still grows is incomplete at every length") {
  const std::string whole = torch_file({{"w", TensorText().text()}});
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const ScratchFolder scratch;
    write_checkpoint(scratch, {{"pytorch_model_fsdp.bin", whole.substr(0, n)}});
    const auto report = report_of(scratch);
    REQUIRE(report.has_value());
    INFO(n << ": " << report->kinds[0].reason);
    CHECK(report->kinds[0].completeness == Completeness::kIncomplete);
    CHECK_FALSE(report->kinds[0].damaged);
  }
}

TEST_CASE("without its index, or with a shard missing, a .bin checkpoint is incomplete") {
  const ScratchFolder scratch;
  write_checkpoint(
      scratch, {{"pytorch_model-00001-of-00002.bin", torch_file({{"a", TensorText().text()}})}});
  CHECK(report_of(scratch)->kinds[0].reason.find("pytorch_model.bin.index.json: is missing") !=
        std::string::npos);

  write_checkpoint(scratch, {{"pytorch_model.bin.index.json", kIndex}});
  const auto report = report_of(scratch);
  CHECK(report->kinds[0].completeness == Completeness::kIncomplete);
  CHECK(report->kinds[0].reason.find("pytorch_model-00002-of-00002.bin: is missing") !=
        std::string::npos);
}

TEST_CASE("safetensors come before .bin, as transformers prefers them") {
  const ScratchFolder scratch;
  const std::string safe = safetensors_bytes(
      R"({"s":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", bytes_of<std::int32_t>({9}));
  const std::string bin = torch_file({{"w", TensorText().text()}});
  write_checkpoint(scratch, {{"pytorch_model_fsdp.bin", bin}});
  CHECK(plan_of(scratch)->find("w") != nullptr);

  write_checkpoint(scratch, {{"model.safetensors", safe}, {"pytorch_model.bin", bin}});
  const auto plan = plan_of(scratch);
  REQUIRE(plan.has_value());
  CHECK(plan->tensors.size() == 1);
  CHECK(plan->find("s") != nullptr);
}

TEST_CASE("numbers and texts beside the tensors of a .bin file are left out, and told") {
  const ScratchFolder scratch;
  write_checkpoint(scratch, {{"pytorch_model.bin", torch_file({{"step", p_int(3)},
                                                               {"w", TensorText().text()},
                                                               {"run", p_text("first")},
                                                               {"nothing", "N"}})}});

  CHECK(report_of(scratch)->kinds[0].completeness == Completeness::kComplete);
  const auto plan = plan_of(scratch);
  REQUIRE(plan.has_value());
  CHECK(plan->tensors.size() == 1);
  CHECK(tensor_of(*plan, "w") == kFloats);
  CHECK(plan->left_out == std::vector<std::string>{"nothing", "run", "step"});
}

TEST_CASE("a .bin file that is no state_dict is refused by what it holds") {
  struct Case {
    std::string body;
    std::string said;
  };
  for (const Case& c :
       {Case{p_dict({{"epoch", p_int(3)}}), "entry \"epoch\" is not a plain tensor"},
        Case{p_dict({{"model", p_dict({{"w", TensorText().text()}})}, {"epoch", p_int(3)}}),
             "entry \"model\" is not a plain tensor"},
        Case{p_tuple({p_int(1)}), "holds no dict of tensors"},
        Case{p_dict({{"w", DTensorText().text()}}), "entry \"w\" is not a plain tensor"},
        Case{"}(" + p_int(1) + TensorText().text() + "u", "a key that is not text"},
        Case{p_dict({{"w", TensorText().text()}, {"w", TensorText().text()}}),
             "tensor \"w\" is in the file twice"},
        Case{p_call(p_global("os", "system"), p_tuple({p_text("true")})), "refused global"}}) {
    const ScratchFolder scratch;
    write_checkpoint(scratch,
                     {{"pytorch_model.bin",
                       make_zip(torch_parts(p_whole(c.body), {{"0", kFloats}, {"mesh", ""}}))}});
    const auto report = report_of(scratch);
    REQUIRE(report.has_value());
    INFO(c.said << " in " << report->kinds[0].reason);
    CHECK(report->kinds[0].damaged);
    CHECK(report->kinds[0].reason.find(c.said) != std::string::npos);
    CHECK(report->kinds[0].reason.find("pytorch_model.bin") != std::string::npos);
  }
}
