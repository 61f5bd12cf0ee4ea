#include "store/checkpoint/tensor_names.h"

#include <catch2/catch_test_macros.hpp>

#include "store/checkpoint/lora_names.h"
#include "store/checkpoint/plan_warnings.h"
#include "tests/unit/checkpoint/dcp_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

using Names = std::vector<std::string>;

const std::string kFloats = bytes_of<float>({1, 2, 3, 4, 5, 6});

std::string torch_file(const Names& names) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const std::string& name : names) entries.emplace_back(name, TensorText{}.text());
  return make_zip(torch_parts(p_whole(p_dict(entries)), {{"0", kFloats}}));
}

/// A safetensors file of U8 tensors of one element.
std::string safetensors_file(const Names& names, const std::string& metadata = {}) {
  std::string header = "{" + metadata;
  for (std::size_t i = 0; i < names.size(); ++i) {
    header += std::string(header.size() > 1 ? "," : "") + "\"" + names[i] +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
  }
  return safetensors_bytes(header + "}", std::string(names.size(), 'x'));
}

Result<Plan> plan_of(const ScratchFolder& scratch) {
  return make_plan(RealFileSystem(), scratch.at("checkpoint-5"), WeightsKind::kRegular,
                   {.weights_only = true});
}

Names names_in(const Result<Plan>& plan) {
  if (!plan.has_value()) return {"error: " + plan.error().message};
  Names names;
  for (const TensorPlan& tensor : plan->tensors) names.push_back(tensor.name);
  return names;
}

/// The names that a checkpoint of this one file gets.
Names names_of_file(const std::string& name, const std::string& content) {
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/" + name, content);
  return names_in(plan_of(scratch));
}

const char* const kShard = "pytorch_model_fsdp_0/model_world_size_1_rank_0.pt";

}  // namespace

TEST_CASE("components that are wrappers' names go wherever they are, words that hold one stay") {
  CHECK(unwrapped_name("_orig_mod.a.b") == "a.b");
  CHECK(unwrapped_name("a._checkpoint_wrapped_module.b._fsdp_wrapped_module.c") == "a.b.c");
  CHECK(unwrapped_name("d._orig_mod") == "d");
  CHECK(unwrapped_name("_orig_mod") == "_orig_mod");
  CHECK(unwrapped_name("_orig_mod._orig_mod.a") == "a");
  CHECK(unwrapped_name("a._orig_mode.b") == "a._orig_mode.b");
  CHECK(unwrapped_name("my_orig_mod.b") == "my_orig_mod.b");
  CHECK(unwrapped_name("odd..name.") == "odd..name.");
  CHECK(unwrapped_name("").empty());
}

TEST_CASE("DDP's module goes from the front where all names begin with it, as often as they do") {
  CHECK(unwrapped_names({"module.a", "module.b.module.c"}) == Names{"a", "b.module.c"});
  CHECK(unwrapped_names({"module.module.a", "module.module.b"}) == Names{"a", "b"});
  CHECK(unwrapped_names({"module._orig_mod.a", "_orig_mod.module.b"}) == Names{"a", "b"});
  CHECK(unwrapped_names({"module.a", "b"}) == Names{"module.a", "b"});
  CHECK(unwrapped_names({"module.a", "modules.b"}) == Names{"module.a", "modules.b"});
  CHECK(unwrapped_names({"module.", "module.a"}) == Names{"module.", "module.a"});
  CHECK(unwrapped_names({}).empty());
}

TEST_CASE("a name of a million wrappers takes no longer than its length") {
  std::string name;
  for (int i = 0; i < 1'000'000; ++i) name += "module.";
  CHECK(unwrapped_names({name + "a"}) == Names{"a"});
  CHECK(parse_adapter_name(name + "base_model.model.a.weight").value().target == "a.weight");
  std::string compiled;
  for (int i = 0; i < 1'000'000; ++i) compiled += "_orig_mod.";
  CHECK(unwrapped_name(compiled + "a") == "a");
}

TEST_CASE("wrappers' names go from every layout") {
  const Names stored = {"module._orig_mod.b.weight", "module._orig_mod.a.weight"};
  const Names expected = {"a.weight", "b.weight"};

  CHECK(names_of_file("pytorch_model.bin", torch_file(stored)) == expected);
  CHECK(names_of_file("pytorch_model_fsdp.bin", torch_file(stored)) == expected);
  CHECK(names_of_file(kShard, torch_file(stored)) == expected);
  CHECK(names_of_file("model.safetensors", safetensors_file(stored)) == expected);
  const std::string info =
      R"("__metadata__":{"DCP_SHARDING_INFO":"{\"module._orig_mod.a.weight\":)"
      R"({\"saved_offsets\":[0]},\"module._orig_mod.b.weight\":{\"saved_offsets\":[0]}}"})";
  CHECK(names_of_file("shard-00001-model-00001-of-00001.safetensors",
                      safetensors_file(stored, info)) == expected);
}

TEST_CASE("a DCP's names lose its tree and then the wrappers") {
  DcpText dcp;
  for (const std::string name : {"model.module.b", "model._orig_mod.module.a"}) {
    dcp.shapes[name] = {1};
    dcp.pieces.push_back({name, {0}, {1}, "__0_0.distcp", bytes_of<float>({1})});
    dcp.paths[name] = {"model", name.substr(6)};
  }
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/.metadata", dcp.build());
  for (const auto& [file, bytes] : dcp.data) scratch.write("checkpoint-5/" + file, bytes);

  CHECK(names_in(plan_of(scratch)) == Names{"a", "b"});
}

TEST_CASE("an index speaks of the names in its files, which are wrapped") {
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/model-00001-of-00002.safetensors", safetensors_file({"_orig_mod.b"}));
  scratch.write("checkpoint-5/model-00002-of-00002.safetensors", safetensors_file({"_orig_mod.a"}));
  scratch.write("checkpoint-5/model.safetensors.index.json",
                R"({"weight_map":{"_orig_mod.a":"model-00002-of-00002.safetensors",)"
                R"("_orig_mod.b":"model-00001-of-00002.safetensors"}})");

  CHECK(names_in(plan_of(scratch)) == Names{"a", "b"});
}

TEST_CASE("a tower of SigLIP or CLIP has the names of all releases, another one its own") {
  const std::string head = "lm_head.weight";
  for (const std::string prefix : {"vision_tower.", "model.vision_tower."}) {
    const Names of_5 = {prefix + "embeddings.patch_embedding.weight",
                        prefix + "encoder.layers.0.layer_norm1.weight",
                        prefix + "post_layernorm.weight"};
    Names expected = {head};
    for (const std::string& name : of_5) {
      expected.push_back(prefix + "vision_model." + name.substr(prefix.size()));
    }
    std::sort(expected.begin(), expected.end());
    Names stored = of_5;
    stored.push_back("_orig_mod." + head);
    CHECK(names_of_file("pytorch_model.bin", torch_file(stored)) == expected);
    CHECK(names_of_file("model.safetensors", safetensors_file(expected)) == expected);
  }
  const Names of_internvl = {"vision_tower.embeddings.patch_embeddings.projection.weight",
                             "vision_tower.encoder.layer.0.layernorm_before.weight"};
  CHECK(names_of_file("model.safetensors", safetensors_file(of_internvl)) == of_internvl);
  const Names half = {"vision_tower.embeddings.patch_embedding.weight"};
  CHECK(names_of_file("model.safetensors", safetensors_file(half)) == half);
}

TEST_CASE("ties are between the names without wrappers") {
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/pytorch_model.bin",
                torch_file({"z.weight", "_orig_mod.a.weight", "m._orig_mod.weight"}));

  const auto plan = plan_of(scratch);

  REQUIRE(names_in(plan) == Names{"a.weight", "m.weight", "z.weight"});
  CHECK_FALSE(plan->tensors[0].tied_to.has_value());
  CHECK(plan->tensors[1].tied_to == std::optional<std::size_t>{0});
  CHECK(plan->tensors[2].tied_to == std::optional<std::size_t>{0});
}

TEST_CASE("two tensors of one name without wrappers are refused by both of their names") {
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/model.safetensors",
                safetensors_file({"a.weight", "_orig_mod.a.weight"}));

  const auto plan = plan_of(scratch);

  REQUIRE_FALSE(plan.has_value());
  CHECK(plan.error().code == ErrorCode::kCorruption);
  for (const char* part : {"\"a.weight\"", "\"_orig_mod.a.weight\"", "model.safetensors"}) {
    CHECK(plan.error().message.find(part) != std::string::npos);
  }
  const auto shards = names_of_file(kShard, torch_file({"b._orig_mod.c", "b.c"}));
  CHECK(shards[0].find("\"b._orig_mod.c\"") != std::string::npos);
}

TEST_CASE("a name that would end its line under the hash is refused") {
  for (const std::string end : {"\\n", "\\t", "\\u0000", "\\u001f", "\\u007f"}) {
    const ScratchFolder scratch;
    scratch.write("checkpoint-5/model.safetensors", safetensors_file({"a" + end + "b", "c"}));

    const auto plan = plan_of(scratch);

    INFO(end);
    REQUIRE_FALSE(plan.has_value());
    CHECK(plan.error().code == ErrorCode::kCorruption);
    CHECK(plan.error().message.find("\"a\\x") != std::string::npos);
    CHECK(plan.error().message.find("model.safetensors") != std::string::npos);
  }
  CHECK(names_of_file("model.safetensors", safetensors_file({"a b", "\u00e9"})) ==
        Names{"a b", "\u00e9"});
}

TEST_CASE("extra states are no tensors, of any layout, and are told by their names") {
  for (const auto& [file, content] : std::vector<std::pair<std::string, std::string>>{
           {"pytorch_model.bin", torch_file({"a", "m._extra_state", "_extra_state"})},
           {kShard, torch_file({"a", "m._extra_state", "_extra_state"})},
           {"model.safetensors", safetensors_file({"a", "m._extra_state", "_extra_state"})}}) {
    CAPTURE(file);
    const ScratchFolder scratch;
    scratch.write("checkpoint-5/" + file, content);

    const auto plan = plan_of(scratch);

    REQUIRE(names_in(plan) == Names{"a"});
    CHECK(plan->extra_states == Names{"_extra_state", "m._extra_state"});
    const Names warnings = warnings_of(RealFileSystem(), *plan);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find("2 entries") != std::string::npos);
    CHECK(warnings[0].find("\"_extra_state\"") != std::string::npos);
  }
  CHECK_FALSE(is_extra_state("my_extra_state"));
}

TEST_CASE("an extra state of one name twice is refused, so that a short file names few") {
  const std::string file =
      names_of_file("pytorch_model.bin", torch_file({"_extra_state", "a", "_extra_state"}))[0];
  CHECK(file.find("is in the file twice") != std::string::npos);
}

TEST_CASE("a DCP tells its extra states, tensors and others") {
  DcpText dcp;
  for (const std::string name : {"a", "m._extra_state"}) {
    dcp.shapes[name] = {1};
    dcp.pieces.push_back({name, {0}, {1}, "__0_0.distcp", bytes_of<float>({1})});
  }
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/.metadata", dcp.build());
  for (const auto& [file, bytes] : dcp.data) scratch.write("checkpoint-5/" + file, bytes);

  const auto plan = plan_of(scratch);

  REQUIRE(names_in(plan) == Names{"a"});
  CHECK(plan->extra_states == Names{"m._extra_state"});
}

TEST_CASE("torchtitan's names are kept, and a warning says what they are") {
  const Names native = {"layers.0.attention.wq.weight", "tok_embeddings.weight"};
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/model.safetensors", safetensors_file(native));

  const auto plan = plan_of(scratch);

  REQUIRE(names_in(plan) == native);
  const Names warnings = warnings_of(RealFileSystem(), *plan);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("torchtitan") != std::string::npos);
  scratch.write(
      "checkpoint-5/model.safetensors",
      safetensors_file({"model.tok_embeddings.weight", "layers.0.attention.wqkv.weight"}));
  CHECK(warnings_of(RealFileSystem(), *plan_of(scratch)).empty());
}
