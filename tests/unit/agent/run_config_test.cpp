#include "agent/config/run_config.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>

#include "agent/config/few_shot.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::config;
using namespace evalcar::test;

namespace {

struct Disk {
  FakeClock clock;
  MemoryFileSystem files{clock};

  Result<RunConfig> read(const std::string& text) {
    REQUIRE(make_directories(files, "/run").has_value());
    REQUIRE(write_file_atomically(files, "/run/config.yaml", text).has_value());
    return read_run_config(files, "/run");
  }
  std::map<std::string, std::string> taken(const std::string& text) {
    const auto run = read(text);
    REQUIRE(run.has_value());
    std::map<std::string, std::string> values;
    for (const Override& one : run->taken) values[one.key] = one.text;
    return values;
  }
};

constexpr const char* kWhole = R"(trainer_type: fsdp2_trainer
dataset_config:
  dataset_type: vision
trainer_args:
  output_dir: /run
  eval_strategy: steps
  eval_steps: 500
  save_steps: 500
  save_total_limit: 1
  report_to: wandb
  ema_enabled: true
  eval_config:
    server_url: http://localhost:8000
    poll_interval: 10.0
    checkpoint_key: model
    model: qwen_vl
    tasks:
    - docvqa_val
    - mmmu_val
    model_args:
      model: Qwen/Qwen2.5-VL-7B-Instruct
      batch_size: 256
      max_pixels: 400000
      attn_implementation: sdpa
      disable_log_stats: true
    num_fewshot: 0
    batch_size: 64
    limit: 8
    gen_kwargs: null
)";

}  // namespace

TEST_CASE("what a run's own configuration says of its evaluations is taken up") {
  Disk disk;
  const auto values = disk.taken(kWhole);

  CHECK(values ==
        std::map<std::string, std::string>{{"evaluate.tasks", "[\"docvqa_val\", \"mmmu_val\"]"},
                                           {"evaluate.limit", "8"},
                                           {"evaluate.num_fewshot", "0"},
                                           {"evaluate.batch_size", "64"},
                                           {"evaluate.max_pixels", "400000"},
                                           {"evaluate.attn_implementation", "\"sdpa\""},
                                           {"evaluate.eval_strategy", "\"steps\""},
                                           {"evaluate.eval_steps", "500"}});
  const auto run = disk.read(kWhole);
  const std::vector<std::string> notes = {
      "model_args.disable_log_stats = true: without effect here",
      "save_total_limit = 1: what is not measured yet is leased before retention takes it",
      "report_to = wandb: the trainer's own loggers get the numbers from its client",
      "eval_config.poll_interval = 10.0: how often the trainer's client asks; the directory is "
      "watched by watch.poll_interval",
      "eval_config.model = qwen_vl: the architecture is the checkpoint's own"};
  CHECK(run->notes == notes);
  const auto config = load(disk.files, "", run->taken);
  REQUIRE(config.has_value());
  CHECK(config->settings.evaluate.tasks.size() == 2);
  CHECK(config->settings.evaluate.limit == 8);
}

TEST_CASE("what else a run's configuration says is taken up, or told") {
  Disk disk;
  std::string text(kWhole);
  text += "    log_samples: false\n    predict_only: true\n    odd_key: 7\n    other: [1, 2]\n";
  CHECK(disk.taken(text).at("evaluate.log_samples") == "false");
  const auto notes = disk.read(text)->notes;
  for (const char* const note :
       {"eval_config.predict_only = true: the answers are scored all the same",
        "eval_config.odd_key = 7: without effect here",
        "eval_config.other = …: without effect here"}) {
    CHECK(std::ranges::count(notes, note) == 1);
  }
}

TEST_CASE("a number of examples is taken up") {
  Disk disk;
  std::string text(kWhole);
  text.replace(text.find("num_fewshot: 0"), 14, "num_fewshot: 3");
  CHECK(disk.taken(text).at("evaluate.num_fewshot") == "3");
}

TEST_CASE("no examples are asked for only where some would be shown without that") {
  CHECK(settled_shots(std::nullopt, std::nullopt, true) == std::nullopt);
  CHECK(settled_shots(std::nullopt, 2, false) == 2);
  CHECK(settled_shots(0, std::nullopt, false) == std::nullopt);
  CHECK(settled_shots(0, std::nullopt, true) == 0);
  CHECK(settled_shots(0, 2, false) == 0);
  CHECK(settled_shots(0, 0, false) == 0);
  CHECK(settled_shots(3, 2, false) == 3);
}

TEST_CASE("without a strategy nothing is evaluated by itself, and without EMA only one kind") {
  Disk disk;
  const auto values =
      disk.taken("trainer_args:\n  ema_enabled: false\n  eval_config:\n    tasks: [docvqa_val]\n");

  CHECK(values.at("evaluate.eval_strategy") == "\"no\"");
  CHECK(values.at("evaluate.weights") == "[\"regular\"]");
}

TEST_CASE("what somebody set himself is not overridden") {
  Disk disk;
  const auto run = disk.read(kWhole);
  const auto mine = load(disk.files, "", {{"evaluate.limit", "100", "--limit"}});
  REQUIRE(mine.has_value());

  for (const Override& one : overrides_left_open(*mine, *run)) CHECK(one.key != "evaluate.limit");
  CHECK(overrides_left_open(*mine, *run).size() == run->taken.size() - 1);
}

TEST_CASE("a file that tells nothing of evaluations, or is meant to harm, is refused") {
  Disk disk;
  for (const std::string& text :
       {std::string(), std::string("a: 1"), std::string("trainer_args: 5"),
        std::string("trainer_args:\n  eval_config: null\n"),
        std::string("trainer_args:\n  eval_config:\n    tasks: docvqa_val\n"),
        std::string("trainer_args: {eval_config: {tasks: []}}"), std::string("a: [1, 2"),
        std::string("a: &x 1\nb: *x\n"), std::string(2'000, '['), std::string(900'000, '['),
        std::string("- ").append(10'000, '-'), std::string(3'000'000, ' '),
        std::string("trainer_args: {eval_config: {tasks: [[x]]}}x: :")}) {
    CAPTURE(text.substr(0, 60));
    CHECK_FALSE(disk.read(text).has_value());
  }
  const FakeClock clock;
  const MemoryFileSystem empty(clock);
  CHECK(read_run_config(empty, "/run").error().code == ErrorCode::kNotFound);
}
