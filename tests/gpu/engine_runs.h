// Runs of the engine over prepared inputs, with all that they said: for cases that compare runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evaluator/engine/engine.h"
#include "tests/gpu/prepared_inputs.h"

namespace evalcar::testing {

/// Of one run.
struct Answers {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<engine::Score>> scores;
  std::map<std::size_t, std::vector<float>> logits;  ///< (steps, vocab) of each request
  std::vector<std::size_t> order;                    ///< in which they were answered
  std::int64_t draft_tokens = 0;                     ///< that were tried
  std::size_t pictures_reused = 0;
};

bool same_scores(const std::vector<engine::Score>& a, const std::vector<engine::Score>& b);
/// Where the runs differ: "" where each request has the same tokens, scores and logits, by their
/// bits; else a sentence about the first that does not.
std::string first_difference(const Answers& got, const Answers& expected);

/// The inputs of the model with pictures, and in another run of the case those of the one whose
/// heads are normalised; skips the case where the bed lacks something. `device`: the bed's.
PreparedInputs inputs_or_skip(std::string& device);

/// The engine with the inputs' model loaded, whose runs write the scores of their steps to
/// `answers`, which must outlive it. Fails the case.
std::unique_ptr<engine::Engine> engine_of(const PreparedInputs& inputs,
                                          engine::EngineOptions options, Answers& answers);
/// One run, in place of what `answers` held. Fails the case where a request fails.
void run(engine::Engine& engine, const std::vector<engine::Request>& requests,
         const engine::ImageSource& images, Answers& answers);
/// One run on an engine of its own.
Answers answer(const PreparedInputs& inputs, const std::vector<engine::Request>& requests,
               const engine::EngineOptions& options);

/// The largest difference of two rows, in terms of the largest score.
float difference(std::span<const float> got, std::span<const float> expected);
/// Root mean square error of the first scores of the inputs' own requests, which come first,
/// against transformers' in float32: mean over the cases.
double first_scores_error(const PreparedInputs& inputs, const Answers& answers);

/// The request with `count` bytes more behind it, others for each `seed`.
engine::Request with_bytes(engine::Request request, std::size_t count, std::size_t seed);

/// For each of the inputs' prompts transformers' answer scored as a part of the request, and as
/// what may follow it, beside another one.
std::vector<engine::Request> scoring_requests(const PreparedInputs& inputs);

}  // namespace evalcar::testing
