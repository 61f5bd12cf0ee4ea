// What is left of a GPU's memory between runs. What libtorch keeps for later allocations is
// nobody's to see: the driver counts it as taken, and what is read ahead next would be cut out of
// it.
#include <ATen/ops/empty.h>

#include <catch2/catch_test_macros.hpp>

#include "evaluator/engine/device.h"
#include "store/checkpoint/plan.h"
#include "tests/gpu/prepared_inputs.h"

using namespace evalcar;

namespace {

std::uint64_t reserved_on(c10::Device device) { return engine::gpu_memory(device, 1, 0).reserved; }

// The inputs that are loaded first and the GPU that they are for; skips where there is none.
testing::PreparedInputs inputs_of_gpu(c10::Device& device) {
  const auto bed = testing::find_test_bed();
  if (!bed.missing.empty()) SKIP(bed.missing);
  if (bed.device == "cpu") SKIP("is about the memory of a GPU");
  device = engine::resolve_device(bed.device)->device;
  auto inputs = testing::PreparedInputs::read(bed.inputs + "/text");
  if (!inputs.has_value()) FAIL(inputs.error().message);
  return std::move(inputs).value();
}

}  // namespace

TEST_CASE("what a run took of a GPU, and weights that were exchanged, are free afterwards") {
  c10::Device device = c10::kCPU;
  const testing::PreparedInputs inputs = inputs_of_gpu(device);
  const RealFileSystem files;
  const auto plan = checkpoint::make_plan(files, inputs.model, checkpoint::WeightsKind::kRegular);
  REQUIRE(plan.has_value());
  const auto engine = load_engine(inputs, {.device = device.str()});
  REQUIRE(engine.has_value());
  engine::RunEvents events;
  events.answered = [](std::size_t, const Result<engine::Answer>& answer) { CHECK(answer); };

  CHECK((*engine)->generate(inputs.requests(), *inputs.images, {}, events, {}));
  const std::uint64_t after_run = reserved_on(device);
  engine::release_unused_memory(device);
  CHECK(reserved_on(device) == after_run);

  CHECK((*engine)->prefetch(files, *plan, inputs.model, "auto", {}));
  const auto loaded = (*engine)->load(files, *plan, inputs.model, "auto", {}, {});
  REQUIRE(loaded.has_value());
  CHECK(loaded->prefetched);
  const std::uint64_t after_exchange = reserved_on(device);
  engine::release_unused_memory(device);
  CHECK(reserved_on(device) == after_exchange);
}

TEST_CASE("of a GPU that others use no more is taken than the share that is allowed") {
  c10::Device device = c10::kCPU;
  const testing::PreparedInputs inputs = inputs_of_gpu(device);
  const auto engine = load_engine(
      inputs, {.device = device.str(), .gpu_memory_utilization = 0.5, .share_gpu = true});
  REQUIRE(engine.has_value());
  const auto more = static_cast<std::int64_t>(engine::gpu_memory(device, 1, 0).total / 16 * 9);

  CHECK_THROWS_AS(at::empty({more}, at::TensorOptions().dtype(at::kByte).device(device)),
                  c10::OutOfMemoryError);

  engine::limit_gpu_memory(device, 1);  // of this process, so of the other cases, too
}
