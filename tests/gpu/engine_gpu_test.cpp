// The engine on a GPU against transformers on the CPU, from inputs that were prepared beforehand.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include "store/checkpoint/plan.h"
#include "tests/gpu/prepared_inputs.h"

using namespace evalcar;
using evalcar::testing::PreparedInputs;

namespace {

struct Answers {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<engine::Score>> scores;
  std::map<std::size_t, std::vector<float>> logits;  // (steps, vocab) of each request
};

// An engine with the model loaded that writes the scores of what it runs to `answers`.
std::unique_ptr<engine::Engine> engine_of(const PreparedInputs& inputs,
                                          engine::EngineOptions options, Answers& answers) {
  options.observe_logits = [&](std::size_t request, std::int64_t, std::span<const float> row) {
    auto& rows = answers.logits[request];
    rows.insert(rows.end(), row.begin(), row.end());
  };
  auto engine = load_engine(inputs, options);
  if (!engine.has_value()) FAIL(engine.error().message);
  return std::move(engine).value();
}

void run(engine::Engine& engine, const std::vector<engine::Request>& requests,
         const engine::ImageSource& images, Answers& answers) {
  answers.tokens.assign(requests.size(), {});
  answers.scores.assign(requests.size(), {});
  answers.logits.clear();
  engine::RunEvents events;
  events.answered = [&](std::size_t request, const Result<engine::Answer>& given) {
    if (!given.has_value()) FAIL(given.error().message);
    answers.tokens[request] = given->tokens;
    answers.scores[request] = given->scores;
  };
  const Status status = engine.generate(requests, images, {}, events, {});
  if (!status.has_value()) FAIL(status.error().message);
}

Answers answer(const PreparedInputs& inputs, const std::vector<engine::Request>& requests,
               const engine::EngineOptions& options) {
  Answers answers;
  const auto engine = engine_of(inputs, options, answers);
  run(*engine, requests, *inputs.images, answers);
  return answers;
}

Answers answer(const PreparedInputs& inputs, const std::string& device, const std::string& dtype,
               std::int64_t batch_size) {
  return answer(inputs, inputs.requests(),
                {.device = device, .dtype = dtype, .batch_size = batch_size});
}

// The largest difference of two rows, in terms of the largest score.
float difference(std::span<const float> got, std::span<const float> expected) {
  REQUIRE(got.size() == expected.size());
  float largest = 0, most = 0;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    largest = std::max(largest, std::abs(expected[k]));
    most = std::max(most, std::abs(got[k] - expected[k]));
  }
  return most / largest;
}

// By transformers' scores of step `step`.
double log_likelihood(const testing::PreparedCase& one, std::int64_t vocab, std::size_t step,
                      std::int32_t token) {
  const auto size = static_cast<std::size_t>(vocab);
  const std::span<const float> row = std::span(one.logits).subspan(step * size, size);
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (const float score : row) sum += std::exp(score - largest);
  return row[static_cast<std::size_t>(token)] - largest - std::log(sum);
}

// Of the model with pictures, and of the one whose heads are normalised.
PreparedInputs inputs_or_skip(std::string& device) {
  const auto bed = testing::find_test_bed();
  if (!bed.missing.empty()) SKIP(bed.missing);
  device = bed.device;
  auto inputs = PreparedInputs::read(bed.inputs + std::string(GENERATE("", "/text")));
  if (!inputs.has_value()) FAIL(inputs.error().message);
  return std::move(inputs).value();
}

}  // namespace

TEST_CASE("in float32 a GPU gives transformers' tokens, and its scores to 1e-4 of the largest") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  for (const std::int64_t batch_size : {1, 5}) {
    const Answers answers = answer(inputs, device, "float32", batch_size);
    for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
      INFO("request " << i << ", batch " << batch_size);
      // float32 sums in another order.
      CHECK(difference(answers.logits.at(i), inputs.cases[i].logits) <= 1e-4F);
      CHECK(answers.tokens[i] == inputs.cases[i].tokens);
    }
  }
}

TEST_CASE("in bfloat16 a GPU's first scores are as near to float32's as transformers' own are") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const Answers answers = answer(inputs, device, "bfloat16", 5);
  const auto vocab = static_cast<std::size_t>(inputs.vocab);
  double sum = 0;
  for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
    double squares = 0;
    for (std::size_t k = 0; k < vocab; ++k)
      squares += std::pow(answers.logits.at(i)[k] - inputs.cases[i].logits[k], 2);
    sum += std::sqrt(squares / static_cast<double>(vocab));
  }
  const double error = sum / static_cast<double>(inputs.cases.size());
  INFO("root mean square error " << error << ", transformers' own " << inputs.bfloat16_error);
  CHECK(error < 2 * inputs.bfloat16_error);
  CHECK(error > 0);
}

TEST_CASE("what a GPU says of tokens that are given is transformers' log-likelihood of them") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  std::vector<engine::Request> requests;
  for (const testing::PreparedCase& one : inputs.cases) {
    // Transformers' answer as a part of the request, and as what may follow it, beside another one.
    engine::Request in_it = one.request;
    const auto begin = static_cast<std::int64_t>(in_it.tokens.size());
    in_it.tokens.insert(in_it.tokens.end(), one.tokens.begin(), one.tokens.end());
    in_it.scoring =
        engine::Scoring{.spans = {{begin, begin + static_cast<std::int64_t>(one.tokens.size())}},
                        .continuations = {}};
    requests.push_back(std::move(in_it));
    engine::Request behind_it = one.request;
    behind_it.scoring = engine::Scoring{.spans = {}, .continuations = {one.tokens, {0}}};
    requests.push_back(std::move(behind_it));
  }
  const Answers answers = answer(inputs, requests, {.device = device, .dtype = "float32"});

  for (std::size_t i = 0; i < inputs.cases.size(); ++i) {
    INFO("prompt " << i);
    const testing::PreparedCase& one = inputs.cases[i];
    double expected = 0;
    for (std::size_t step = 0; step < one.tokens.size(); ++step)
      expected += log_likelihood(one, inputs.vocab, step, one.tokens[step]);
    const auto& in_it = answers.scores[2 * i];
    const auto& behind_it = answers.scores[2 * i + 1];
    REQUIRE(in_it.size() == 1);
    REQUIRE(behind_it.size() == 2);
    // As of scores: of the largest.
    const double tolerance = 1e-4 * std::abs(*std::ranges::max_element(one.logits));
    CHECK(std::abs(in_it[0].log_likelihood - expected) <= tolerance);
    CHECK(std::abs(behind_it[0].log_likelihood - expected) <= tolerance);
    CHECK(in_it[0].is_greedy);
    CHECK(behind_it[0].is_greedy);
    CHECK(std::abs(behind_it[1].log_likelihood - log_likelihood(one, inputs.vocab, 0, 0)) <=
          tolerance);
  }
}

TEST_CASE("behind a prefix that requests share a GPU gives the scores that each has alone") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  // Behind each prompt, which all of its questions share if it has 32 tokens. Their lengths are
  // about those of the blocks of 64 queries in which libtorch's fused attention masks a piece
  // (evaluator/kernels/attention.cpp).
  std::vector<engine::Request> requests;
  for (const testing::PreparedCase& one : inputs.cases) {
    for (const std::size_t length : {2U, 64U, 65U, 129U}) {
      engine::Request question = one.request;
      for (std::size_t k = 0; k < length; ++k)  // bytes
        question.tokens.push_back(static_cast<std::int32_t>((31 * k + 17 * length) % 256));
      question.generation.max_new_tokens = 1;
      requests.push_back(std::move(question));
    }
  }
  const engine::EngineOptions together{.device = device, .dtype = "float32"};
  engine::EngineOptions alone = together;
  alone.share_prefixes = false;
  alone.batch_size = 1;

  const Answers shared = answer(inputs, requests, together);
  const Answers expected = answer(inputs, requests, alone);

  for (std::size_t i = 0; i < requests.size(); ++i) {
    INFO("request " << i);
    CHECK(difference(shared.logits.at(i), expected.logits.at(i)) <= 1e-4F);
  }
}

TEST_CASE("the same run on a GPU gives the same bits twice") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const Answers first = answer(inputs, device, "bfloat16", 5);
  const Answers second = answer(inputs, device, "bfloat16", 5);
  CHECK(first.tokens == second.tokens);
  CHECK(first.logits == second.logits);
}

TEST_CASE("decoding by CUDA graphs gives the bits of decoding without") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  // Answers that end one after the other, in packs of several numbers of sequences, some beyond 128
  // keys while they are decoded.
  std::vector<engine::Request> requests;
  for (std::size_t i = 0; i < 3 * inputs.cases.size(); ++i) {
    engine::Request request = inputs.cases[i % inputs.cases.size()].request;
    for (std::size_t k = 0; k < 7 * i; ++k)  // bytes
      request.tokens.push_back(static_cast<std::int32_t>((31 * k + 17 * i) % 256));
    request.generation.max_new_tokens = 36 - static_cast<std::int64_t>(2 * i);
    requests.push_back(std::move(request));
  }
  for (const std::string dtype : {"float32", "bfloat16"}) {
    for (const std::int64_t batch_size : {1, 2, 5, 13}) {
      INFO(dtype << ", batch " << batch_size);
      int passes = 0, replayed = 0;
      engine::EngineOptions options{.device = device, .dtype = dtype, .batch_size = batch_size};
      options.observe_pass = [&](bool by_graph) {
        ++passes;
        replayed += by_graph ? 1 : 0;
      };
      const Answers by_graphs = answer(inputs, requests, options);
      // A number of sequences is met by a pass without a graph first, and two passes later one has
      // ended: of a pack of all of them half the passes are firsts.
      if (device != "cpu") CHECK(replayed >= passes / 2);
      options.decode_graphs = false;
      passes = replayed = 0;
      const Answers without = answer(inputs, requests, options);
      CHECK(replayed == 0);
      CHECK(by_graphs.tokens == without.tokens);
      CHECK(by_graphs.logits == without.logits);
    }
  }
}

TEST_CASE("graphs of one cache are no graphs of the next") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  if (!inputs.model.ends_with("/text/model")) return;  // one model is enough
  // Room for one long sequence or several short ones, and not for several long ones: the packs'
  // caches have different shapes.
  std::ifstream file(inputs.model + "/config.json");
  const auto config = nlohmann::json::parse(file);
  const auto number = [&](const char* name) { return config.at(name).get<std::uint64_t>(); };
  const std::uint64_t bytes = 2 * sizeof(float) * number("num_hidden_layers") *
                              number("num_key_value_heads") * number("head_dim");
  std::vector<engine::Request> requests;
  for (const std::size_t length : {200U, 40U, 30U, 20U}) {
    engine::Request request = inputs.cases.back().request;
    request.tokens.resize(length);
    request.generation.max_new_tokens = 12;
    requests.push_back(std::move(request));
  }
  int replayed = 0;
  engine::EngineOptions options{.device = device, .dtype = "float32", .batch_size = 3};
  options.cache_bytes = 300 * bytes;
  options.share_prefixes = false;
  std::vector<std::int64_t> packs;
  options.before_pack = [&](std::int64_t sequences) { packs.push_back(sequences); };
  options.observe_pass = [&](bool by_graph) { replayed += by_graph ? 1 : 0; };
  const Answers by_graphs = answer(inputs, requests, options);
  CHECK(packs == std::vector<std::int64_t>{1, 3});
  if (device != "cpu") CHECK(replayed > 10);
  options.decode_graphs = false;
  CHECK(answer(inputs, requests, options).logits == by_graphs.logits);
}

TEST_CASE("weights that were read while a GPU computed give the same bits, then and afterwards") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  const Answers undisturbed = answer(inputs, device, "bfloat16", 5);
  const RealFileSystem files;
  const auto plan = checkpoint::make_plan(files, inputs.model, checkpoint::WeightsKind::kRegular);
  REQUIRE(plan.has_value());
  Answers answers;
  const auto engine =
      engine_of(inputs, {.device = device, .dtype = "bfloat16", .batch_size = 5}, answers);

  Status ahead;
  {
    const std::jthread reading([&] {
      for (int i = 0; i < 3 && ahead.has_value(); ++i) {
        ahead = engine->prefetch(files, *plan, inputs.model, "auto", {});
      }
    });
    run(*engine, inputs.requests(), *inputs.images, answers);
  }
  CHECK((ahead.has_value() ? std::string() : ahead.error().message) == "");
  CHECK(answers.logits == undisturbed.logits);
  const auto loaded = engine->load(files, *plan, inputs.model, "auto", {}, {});
  REQUIRE(loaded.has_value());
  CHECK(loaded->prefetched);
  run(*engine, inputs.requests(), *inputs.images, answers);
  CHECK(answers.tokens == undisturbed.tokens);
  CHECK(answers.logits == undisturbed.logits);
}
