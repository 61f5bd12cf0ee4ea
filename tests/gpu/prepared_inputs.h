// What tests/gpu/prepare_inputs.py wrote where transformers was at hand: a model, prompts with
// pictures, and transformers' answers. The machine with the GPU needs neither Python, Parquet nor a
// picture decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evaluator/engine/engine.h"
#include "store/base/file_system.h"
#include "tests/gpu/raw_images.h"

namespace evalcar::testing {

/// One prompt and what transformers makes of it in float32 on the CPU.
struct PreparedCase {
  engine::Request request;
  std::vector<std::int32_t> tokens;  ///< greedy
  std::vector<float> logits;         ///< (tokens, vocab)
};

struct PreparedInputs {
  std::string model;  ///< folder
  std::string other;  ///< folder of a model of the same shape with other weights
  std::int64_t vocab = 0;
  std::vector<PreparedCase> cases;
  /// Root mean square error of transformers' own first scores in bfloat16 against float32, both on
  /// the CPU: mean over the cases.
  double bfloat16_error = 0;
  std::unique_ptr<RawImages> images;

  /// From `folder`. Errors name the file and say how to make it.
  static Result<PreparedInputs> read(const std::string& folder);
  std::vector<engine::Request> requests() const;
};

/// What to run on, and why not: EVALCAR_GPU_TEST_DEVICE ("cpu" checks the checks), else the GPU.
struct TestBed {
  std::string device;
  std::string inputs;     ///< folder: EVALCAR_GPU_INPUTS, else build/gpu-inputs of the source tree
  std::string missing;    ///< a sentence; empty: all is there
  std::string no_device;  ///< the same of the device alone, for cases without inputs
};
TestBed find_test_bed();

/// An engine on the bed's device with the model loaded.
Result<std::unique_ptr<engine::Engine>> load_engine(const PreparedInputs& inputs,
                                                    const engine::EngineOptions& options);

}  // namespace evalcar::testing
