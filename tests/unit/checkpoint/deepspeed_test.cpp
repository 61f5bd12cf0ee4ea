// Hostile ZeRO partitions. That good ones are put together as DeepSpeed does is shown against
// DeepSpeed itself (tests/parity/checkpoint/test_deepspeed.py).
#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "store/checkpoint/deepspeed_files.h"
#include "tests/unit/checkpoint/torch_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

std::string floats(std::size_t count, float first) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return bytes_of(values);
}

std::string p_list(const std::vector<std::string>& items) {
  std::string text = "](";
  for (const std::string& item : items) text += item;
  return text + "e";
}

/// A list that holds one object `times` times.
std::string p_same(const std::string& item, std::size_t times) {
  std::string text = "](" + item + "q\xc8";
  for (std::size_t i = 1; i < times; ++i) text += "h\xc8";
  return text + "e";
}

std::string flat(const std::string& key, std::int64_t numel) {
  return TensorText{.key = key, .numel = numel, .size = {numel}, .stride = {1}}.text();
}

std::string p_stage(std::int64_t stage) {
  return p_call(p_global("deepspeed.runtime.zero.config", "ZeroStageEnum"),
                p_tuple({p_int(stage)}));
}

/// Two ranks of stage 2 with one parameter [2, 3] (flat 0 … 5, cut 4 + 2) and one buffer; stage 3
/// has the same cut 3 + 3. Every part can be made wrong.
struct Zero {
  ScratchFolder scratch;
  int stage = 2;
  std::string stage_text = p_stage(2);
  std::string partitions = p_list({p_int(2)});
  std::vector<std::int64_t> sizes = {4, 2};  // of the ranks' flat vectors
  std::string shapes = p_list({p_dict({{"w", p_ints({2, 3})}})});
  std::string buffer_names = p_list({p_text("b")});
  std::string module =
      p_dict({{"b", TensorText{.key = "0", .numel = 2, .size = {2}, .stride = {1}}.text()}});
  std::vector<std::pair<std::string, std::string>> more_model;
  std::vector<std::pair<std::string, std::string>> more_optimizer;
  std::size_t same_group = 1;       // how often the list of groups holds the one flat vector
  std::vector<std::string> groups;  // of each rank; if empty, one of its size
  std::string latest = "global_step5";

  Zero() = default;
  explicit Zero(int zero_stage) : stage(zero_stage) {
    if (stage != 3) return;
    stage_text = p_stage(3);
    partitions = p_int(2);
    sizes = {3, 3};
  }

  std::string at(const std::string& name) const { return "checkpoint-5/global_step5/" + name; }

  void write() const {
    scratch.write("checkpoint-5/config.json", "{}");
    scratch.write("checkpoint-5/latest", latest);
    for (int rank = 0; rank < 2; ++rank) {
      const std::string prefix = "zero_pp_rank_" + std::to_string(rank);
      const std::int64_t size = sizes[static_cast<std::size_t>(rank)];
      std::vector<std::pair<std::string, std::string>> state = {
          {"loss_scaler",
           p_object(p_global("deepspeed.runtime.fp16.loss_scaler", "LossScaler"), p_dict({}))},
          {"zero_stage", stage_text},
          {"partition_count", partitions},
          {stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups",
           groups.empty() ? p_same(flat("0", size), same_group) : p_list(groups)}};
      state.insert(state.end(), more_optimizer.begin(), more_optimizer.end());
      const std::string pickle = p_whole(p_dict({{"optimizer_state_dict", p_dict(state)}}));
      const float first = rank == 0 ? 0.0F : static_cast<float>(sizes[0]);
      scratch.write(
          at(prefix + "_mp_rank_00_optim_states.pt"),
          make_zip(torch_parts(pickle, {{"0", floats(static_cast<std::size_t>(size), first)}})));
      if (stage == 3) write_model(prefix + "_mp_rank_00_model_states.pt");
    }
    if (stage != 3) write_model("mp_rank_00_model_states.pt");
  }

  void write_model(const std::string& name) const {
    std::vector<std::pair<std::string, std::string>> state = {
        {"module", module}, {"buffer_names", buffer_names}, {"param_shapes", shapes}};
    state.insert(state.end(), more_model.begin(), more_model.end());
    scratch.write(at(name), make_zip(torch_parts(p_whole(p_dict(state)),
                                                 {{"0", floats(2, 100)}, {"1", floats(6, 50)}})));
  }

  Result<Plan> plan() const {
    write();
    return make_plan(RealFileSystem(), scratch.at("checkpoint-5"), WeightsKind::kRegular);
  }
  KindState state() const {
    return inspect_layout(RealFileSystem(), scratch.at("checkpoint-5"))->kinds.at(0);
  }
  std::string refusal() const {
    const auto made = plan();
    if (made.has_value()) return "accepted";
    const ErrorCode code = made.error().code;
    const bool unsupported = code == ErrorCode::kUnsupported;
    CHECK((unsupported && state().damaged) == state().unsupported);
    return (unsupported                      ? "unsupported: "
            : code == ErrorCode::kCorruption ? "corrupt: "
                                             : "incomplete: ") +
           made.error().message;
  }
  std::string read(const std::string& name) const {
    const auto made = plan();
    REQUIRE(made.has_value());
    return tensor_of(*made, name);
  }
};

void says(const Zero& zero, std::string_view code, std::string_view part) {
  const std::string text = zero.refusal();
  INFO(text);
  CHECK(text.starts_with(code));
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("flat groups of two dtypes and two model states of a rank are refused") {
  Zero zero(3);
  zero.groups = {
      flat("0", 2),
      TensorText{
          .storage_class = "DoubleStorage", .key = "0", .numel = 1, .size = {1}, .stride = {1}}
          .text()};
  zero.sizes = {2, 2};
  zero.shapes = p_list({p_dict({{"w", p_ints({2, 2})}})});
  says(zero, "corrupt: ", "a flat vector of float32 and float64");

  const Zero twice(3);
  twice.write_model("bf16_zero_pp_rank_0_mp_rank_00_model_states.pt");
  says(twice, "corrupt: ", "holds two model states of rank 0");
}

TEST_CASE("both forms of partition give the parameter and the buffer") {
  for (const int stage : {2, 3}) {
    const Zero zero(stage);
    CHECK(zero.read("w") == floats(6, 0));
    CHECK(zero.read("b") == floats(2, 100));
    const KindState state = zero.state();
    CHECK(state.completeness == Completeness::kComplete);
    CHECK(state.world_size == 2);
    CHECK(state.files.size() == (stage == 3 ? 6U : 5U));  // states, latest, config.json
  }
}

TEST_CASE("an empty vector of a rank, padding behind it and shared names are read") {
  Zero zero;
  zero.sizes = {6, 0};
  zero.more_model = {{"shared_params", p_dict({{"w2", p_text("w")}})}};
  CHECK(zero.read("w2") == floats(6, 0));
  const auto plan = zero.plan();
  CHECK(plan->find("w2")->tied_to == 1U);  // after "b" and "w"

  Zero pairs(3);
  pairs.more_model = {{"shared_params", p_list({p_tuple({p_text("w2"), p_text("w")})})}};
  CHECK(pairs.read("w2") == floats(6, 0));

  Zero padded(3);  // [5] over two ranks: 3 + 2, one element of padding
  padded.shapes = p_list({p_dict({{"w", p_ints({5})}})});
  CHECK(padded.read("w") == floats(5, 0));

  Zero aligned;  // one element of alignment behind the parameter
  aligned.shapes = p_list({p_dict({{"v", p_ints({2})}, {"w", p_ints({3})}})});
  aligned.more_optimizer = {{"param_alignment_paddings", p_list({p_list({p_int(1), p_int(0)})})}};
  CHECK(aligned.read("w") == floats(3, 3));
}

TEST_CASE("sizes that do not add up are refused") {
  {
    Zero zero;
    zero.shapes = p_list({p_dict({{"w", p_ints({2, 4})}})});
    says(zero, "corrupt", "flat vector");
  }
  {
    Zero zero;
    zero.shapes = p_list({p_dict({{"w", p_ints({1})}})});
    says(zero, "corrupt", "take 1 of 6");
  }
  {
    Zero zero(3);
    zero.shapes = p_list({p_dict({{"w", p_ints({2, 4})}})});
    says(zero, "corrupt", "end before");
  }
  {
    Zero zero(3);
    zero.shapes = p_list({p_dict({{"w", p_ints({2})}})});
    says(zero, "corrupt", "take 1 of 3");
  }
  {
    Zero zero(3);
    zero.sizes = {3, 2};
    says(zero, "corrupt", "another length");
  }
  {
    Zero zero;
    zero.shapes = p_list({p_dict({{"w", p_ints({INT64_MAX, INT64_MAX})}})});
    says(zero, "corrupt", "too large a shape");
  }
  {
    Zero zero;
    zero.shapes = p_list({p_dict({{"w", p_ints({-2, -3})}})});
    says(zero, "corrupt", "without name or shape");
  }
  {
    Zero zero;
    zero.shapes = p_list({p_dict({{"w", p_ints({2, 3})}, {"w", p_ints({0})}})});
    says(zero, "corrupt", "twice");
  }
  {
    Zero zero;
    zero.shapes = p_list({p_dict({{"w", p_ints({2, 3})}}), p_dict({{"v", p_ints({2})}})});
    says(zero, "corrupt", "2 groups");
  }
  {
    Zero zero;
    zero.more_optimizer = {{"param_alignment_paddings", p_list({p_list({p_int(INT64_MAX)})})}};
    says(zero, "corrupt", "alignment padding is too large");
  }
  {
    Zero zero;
    zero.more_model = {{"shared_params", p_dict({{"b", p_text("w")}})}};
    says(zero, "corrupt", "twice");
  }
}

TEST_CASE("an object that a small file names very often does not become as many in memory") {
  {
    Zero zero;
    zero.same_group = 10'001;
    says(zero, "corrupt", "more than 10000 groups");
  }
  {
    Zero zero;
    zero.same_group = 3;
    zero.more_optimizer = {{"param_alignment_paddings",
                            p_same(p_list(std::vector<std::string>(70'000, p_int(0))), 3)}};
    says(zero, "corrupt", "param_alignment_paddings");
  }
  {
    Zero zero;
    zero.shapes = p_same(p_dict({{"w", p_ints({2, 3})}}), 2);
    says(zero, "corrupt", "parameter \"w\" comes twice");
  }
  {
    Zero zero;
    zero.shapes = p_same(p_dict({}), 10'001);
    says(zero, "corrupt", "too many groups");
  }
  {
    Zero zero;
    zero.more_model = {{"shared_params", p_same(p_list({p_text("tied"), p_text("w")}), 1'000'000)}};
    says(zero, "corrupt", "tensor \"tied\" comes twice");
  }
}

TEST_CASE("frozen parameters are taken from their fragments, which have to fit") {
  const auto fragment = [](std::int64_t numel) { return flat("1", numel); };
  Zero zero(3);
  zero.more_model = {{"frozen_param_shapes", p_dict({{"f", p_ints({11})}})},
                     {"frozen_param_fragments", p_dict({{"f", fragment(6)}})}};
  CHECK(zero.read("f") == floats(6, 50) + floats(5, 50));
  zero.more_model[0].second = p_dict({{"f", p_ints({13})}});
  says(zero, "corrupt", "flat vector");
  zero.more_model[1].second = p_dict({});
  says(zero, "corrupt", "no fragment");
  Zero two;
  two.more_model = {
      {"frozen_param_shapes", p_dict({{"f", p_ints({3, 2})}})},
      {"frozen_param_fragments",
       p_dict({{"f", TensorText{.key = "1", .size = {3, 2}, .stride = {2, 1}}.text()}})}};
  CHECK(two.read("f") == floats(6, 50));
  two.more_model[0].second = p_dict({{"f", p_ints({2, 3})}});
  says(two, "corrupt", "expected [2, 3]");
}

TEST_CASE("what the files say of themselves has to agree with their number") {
  {
    Zero zero;
    zero.partitions = p_list({p_int(3)});
    says(zero, "incomplete", "expected 3");
  }
  {
    Zero zero;
    zero.partitions = p_list({p_int(1)});
    says(zero, "corrupt", "expected 1");
  }
  {
    Zero zero;
    zero.partitions = p_list({p_int(2), p_int(1)});
    says(zero, "unsupported", "expert parallelism");
  }
  {
    Zero zero;
    zero.stage_text = p_stage(4);
    says(zero, "corrupt", "zero_stage");
  }
  {
    Zero zero;
    zero.stage_text = p_int(2);  // as older releases write it
    CHECK(zero.refusal() == "accepted");
  }
  {
    Zero zero;
    zero.more_model = {{"ds_autoep_layers", p_list({p_dict({})})}};
    says(zero, "unsupported", "AutoEP");
  }
}

TEST_CASE("a rank's missing or torn file is incomplete, one of other parallelism is refused") {
  const auto state_after = [](const std::function<void(const Zero&)>& change) {
    const Zero zero(3);
    zero.write();
    change(zero);
    return zero.state();
  };
  for (const char* const name :
       {"zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"}) {
    INFO(name);
    const KindState gone = state_after(
        [&](const Zero& zero) { std::filesystem::remove(zero.scratch.at(zero.at(name))); });
    CHECK(gone.completeness == Completeness::kIncomplete);
    CHECK_FALSE(gone.damaged);
    const KindState torn = state_after([&](const Zero& zero) {
      const std::string bytes = zero.scratch.read(zero.at(name));
      zero.scratch.write(zero.at(name), bytes.substr(0, bytes.size() - 30));
    });
    CHECK(torn.completeness == Completeness::kIncomplete);
    CHECK_FALSE(torn.damaged);
  }
  for (const char* const name :
       {"zero_pp_rank_0_mp_rank_01_optim_states.pt", "layer_00-model_states.pt",
        "expp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_00_mp_rank_00_optim_states.pt",
        "layer_0_expert_1_mp_rank_00_model_states.pt"}) {
    INFO(name);
    const KindState state =
        state_after([&](const Zero& zero) { zero.scratch.write(zero.at(name), "x"); });
    CHECK(state.completeness == Completeness::kIncomplete);
    CHECK(state.damaged);
    CHECK(state.reason.find("parallelism") != std::string::npos);
  }
}

TEST_CASE("`latest` never leads out of the checkpoint") {
  for (const char* const name : {"../global_step5", "/etc", "..", ".", "a/b"}) {
    INFO(name);
    Zero zero;
    zero.latest = name;
    zero.write();
    CHECK(zero.state().completeness == Completeness::kIncomplete);
    CHECK(zero.state().damaged);
  }
  Zero zero;
  zero.latest = "elsewhere\n";
  zero.write();
  CHECK_FALSE(zero.state().damaged);
  std::filesystem::create_directory_symlink("/", zero.scratch.at("checkpoint-5/elsewhere"));
  CHECK(zero.state().damaged);
}

TEST_CASE("a name that a ZeRO state has no need for is refused, and nothing is run") {
  Zero zero;
  zero.more_optimizer = {{"x", p_call(p_global("os", "system"), p_tuple({p_text("touch x")}))}};
  says(zero, "corrupt", "os.system");
  // DeepSpeed's names are not allowed where only tensors are expected.
  const ScratchFolder scratch;
  scratch.write("checkpoint-5/config.json", "{}");
  scratch.write("checkpoint-5/pytorch_model.bin",
                make_zip(torch_parts(p_whole(p_dict({{"w", p_stage(2)}})), {})));
  const auto plan = make_plan(RealFileSystem(), scratch.at("checkpoint-5"), WeightsKind::kRegular);
  REQUIRE_FALSE(plan.has_value());
  CHECK(plan.error().message.find("ZeroStageEnum") != std::string::npos);
}
