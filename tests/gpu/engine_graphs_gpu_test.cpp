// Decoding by CUDA graphs against decoding without. On the CPU, where there are none, both are
// without.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/gpu/engine_runs.h"

using namespace evalcar;
using namespace evalcar::testing;

TEST_CASE("decoding by CUDA graphs gives the bits of decoding without") {
  std::string device;
  const PreparedInputs inputs = inputs_or_skip(device);
  INFO("inputs of " << inputs.model);
  // Answers that end one after the other, in packs of several numbers of sequences, some beyond 128
  // keys while they are decoded.
  std::vector<engine::Request> requests;
  for (std::size_t i = 0; i < 3 * inputs.cases.size(); ++i) {
    engine::Request request = with_bytes(inputs.cases[i % inputs.cases.size()].request, 7 * i, i);
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
