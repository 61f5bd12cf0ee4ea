// `gpu_bench`: on a GPU, prepared inputs in float32 and bfloat16, answers a second; and the kernels
// against the bytes that they move, beside their ATen versions. Medians of alternating runs; never
// a timed test. Without a GPU it says so and ends with 0.
#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "tests/gpu/kernel_bench.h"
#include "tests/gpu/prepared_inputs.h"

namespace {

using namespace evalcar;

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Status bench_engine(const testing::PreparedInputs& inputs, const std::string& device) {
  const auto requests = inputs.requests();
  for (const std::string dtype : {"float32", "bfloat16"}) {
    EVALCAR_ASSIGN_OR_RETURN(auto engine, load_engine(inputs, {.device = device, .dtype = dtype}));
    engine::RunEvents events;
    std::size_t tokens = 0;
    events.answered = [&](std::size_t, const Result<engine::Answer>& answer) {
      if (answer.has_value()) tokens += answer->tokens.size();
    };
    std::vector<double> seconds;
    for (int repeat = 0; repeat < 6; ++repeat) {
      tokens = 0;
      Status status;
      seconds.push_back(
          seconds_of([&] { status = engine->generate(requests, *inputs.images, {}, events, {}); }));
      EVALCAR_RETURN_IF_ERROR(std::move(status));
    }
    seconds.erase(seconds.begin());  // the first run warms up
    std::cout << dtype << ": " << static_cast<double>(requests.size()) / median(seconds)
              << " answers/s, " << static_cast<double>(tokens) / median(seconds) << " tokens/s\n";
  }
  return {};
}

}  // namespace

int main() {
  const auto bed = testing::find_test_bed();
  if (!bed.missing.empty()) {
    std::cout << "gpu_bench: left out: " << bed.missing << "\n";
    return 0;
  }
  const auto inputs = testing::PreparedInputs::read(bed.inputs);
  const Status done =
      inputs.has_value() ? bench_engine(*inputs, bed.device) : Status(inputs.error());
  if (!done.has_value()) {
    std::cerr << "gpu_bench: " << done.error().message << "\n";
    return 1;
  }
  if (at::hasCUDA() && bed.device != "cpu") testing::bench_kernels();
  return 0;
}
