#include "agent/config/config.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/agent/temporary_folder.h"

using namespace evalcar;
using namespace evalcar::config;
using evalcar::testing::TemporaryFolder;

namespace {

Result<Config> load_text(std::string_view text, const std::vector<Override>& overrides = {}) {
  const TemporaryFolder folder;
  folder.write("evalcar.toml", text);
  return load(RealFileSystem(), folder / "evalcar.toml", overrides);
}

std::string problem_of(std::string_view text) {
  const auto config = load_text(text);
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().code == ErrorCode::kInvalidArgument);
  return config.error().message;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("without a file every key has its documented default") {
  const auto config = load(RealFileSystem(), "", {});

  REQUIRE(config.has_value());
  const Settings& s = config->settings;
  CHECK(s.watch.poll_interval == Duration(10'000));
  CHECK(s.watch.settle_time == Duration(30'000));
  CHECK(s.watch.pattern == "checkpoint-{step}");
  CHECK_FALSE(s.watch.exit_when_quiet.has_value());
  CHECK(s.evaluate.max_pixels == 1605632);
  CHECK(s.evaluate.min_pixels == 200704);
  CHECK(s.evaluate.policy == Policy::kNewestFirst);
  CHECK(s.evaluate.weights == std::vector<std::string>{"regular", "ema"});
  CHECK(s.evaluate.bootstrap_iters == 100000);
  CHECK(s.evaluate.prefetch);
  CHECK(s.evaluate.drafts);
  CHECK_FALSE(s.evaluate.limit.has_value());
  CHECK(s.publish.link_in_checkpoint == LinkInCheckpoint::kAuto);
  CHECK_FALSE(s.limits.min_free.has_value());
  CHECK(s.limits.stage_timeouts.size() == 7);
}

TEST_CASE("values with units are read from the file and overridden by the command line") {
  const auto config = load_text(
      "[watch]\noutput_dir = \"/run\"\npoll_interval = \"2min\"\n"
      "[limits]\nlease_budget = \"8GiB\"\nstage_timeouts = {loading = \"5min\"}\n"
      "[evaluate]\ntasks = [\"a\"]\nlimit = 0.25\n",
      {{"evaluate.tasks", "docvqa_val,textvqa_val", "--tasks"},
       {"evaluate.limit", "100", "--limit"},
       {"watch.settle_time", "5s", "--set"}});

  REQUIRE(config.has_value());
  CHECK(config->settings.watch.output_dir == std::vector<std::string>{"/run"});
  CHECK(config->settings.watch.poll_interval == Duration(120'000));
  CHECK(config->settings.watch.settle_time == Duration(5'000));
  CHECK(config->settings.limits.lease_budget == std::uint64_t{8} << 30U);
  CHECK(config->settings.limits.stage_timeouts.at("loading") == Duration(300'000));
  CHECK(config->settings.limits.stage_timeouts.at("heartbeat") == Duration(120'000));
  CHECK(config->settings.evaluate.tasks == std::vector<std::string>{"docvqa_val", "textvqa_val"});
  CHECK(config->settings.evaluate.limit == 100.0);
}

TEST_CASE("an unknown key is an error that names the line and the nearest known key") {
  const std::string problem = problem_of("[watch]\n\npol_interval = \"1s\"\n");

  CHECK(contains(problem, "evalcar.toml:3"));
  CHECK(contains(problem, "pol_interval"));
  CHECK(contains(problem, "did you mean \"watch.poll_interval\"?"));
  CHECK(contains(problem_of("[evaluate]\noutput_dir = \"x\"\n"), "\"watch.output_dir\""));
  CHECK(contains(problem_of("tasks = [\"a\"]\n"), "outside a section"));
}

TEST_CASE("a bad value names the line, what was seen and what was expected") {
  CHECK(contains(problem_of("[watch]\npoll_interval = 10\n"), "expected a duration"));
  CHECK(contains(problem_of("[watch]\npoll_interval = \"10 parsecs\"\n"), "\"10 parsecs\""));
  CHECK(contains(problem_of("[evaluate]\nlimit = -1\n"), "expected \"all\", a count"));
  CHECK(contains(problem_of("[evaluate]\nlimit = 2.5\n"), "expected \"all\", a count"));
  CHECK(contains(problem_of("[evaluate]\npolicy = \"newest\"\n"), "\"newest-first\""));
  for (const char* const pair : {"mmmu_val", "mmmu_val=0", "=4", "mmmu_val=x", "mmmu_val=4=4"}) {
    const std::string text = "[evaluate]\ntasks = [\"mmmu_val\"]\ntask_every_nth = [\"";
    CHECK(contains(problem_of(text + pair + "\"]\n"), "mmmu_val=4"));
  }
  CHECK(contains(problem_of("[evaluate]\ntasks = [\"docvqa_val\"]\n"
                            "task_eval_steps = [\"mmmu_val=4\"]\n"),
                 "\"mmmu_val\" is not one of evaluate.tasks"));
  for (const char* const part : {"10", "0%", "100%", "%", "x%", "nan%", "10%%"}) {
    CHECK(contains(problem_of("[evaluate]\nanytime = [\"" + std::string(part) + "\"]\n"), "10%"));
  }
  CHECK(contains(problem_of("[evaluate]\ndevice = \"gpu\"\n"), "\"cuda:N\""));
  CHECK(contains(problem_of("[evaluate]\nprefetch = \"auto\"\n"), "evaluate.prefetch"));
  CHECK(contains(problem_of("[evaluate]\nweights = []\n"), "\"regular\" and \"ema\""));
  CHECK(contains(problem_of("[evaluate]\ntasks = [1, 2]\n"), "not understood"));
  CHECK(contains(problem_of("[watch]\npattern = \"ck\"\n"), "exactly one {step}"));
  CHECK(contains(problem_of("[watch\n"), "evalcar.toml:1"));
}

TEST_CASE("all problems of a file are told at once") {
  const std::string problem = problem_of("[watch]\nfoo = 1\n[evaluate]\nseed = -1\nbar = 2\n");

  CHECK(contains(problem, "foo"));
  CHECK(contains(problem, "seed"));
  CHECK(contains(problem, "bar"));
}

TEST_CASE("what this version cannot do is refused or warned about, never quietly ignored") {
  CHECK(contains(problem_of("[evaluate]\nnum_gpus = 2\n"), "cannot do that yet"));
  CHECK(
      contains(problem_of("[evaluate]\naverage_last = 1\n"), "0, or a whole number from 2 to 64"));
  CHECK(load_text("[evaluate]\naverage_last = 3\n").has_value());
  CHECK(load_text("[evaluate]\naverage_last = 0\n").has_value());

  // As in lmms-eval 0.7.3, whose wrappers keep it and use it for nothing.
  const auto length = load_text("[evaluate]\nmax_length = 2048\n");
  REQUIRE(length.has_value());
  REQUIRE(length->warnings.size() == 1);
  CHECK(contains(length->warnings[0], "evaluate.max_length = 2048 has no effect"));

  const auto config = load_text("[limits]\nmemory_max = \"8GiB\"\n");
  REQUIRE(config.has_value());
  CHECK(config->warnings.empty());
  REQUIRE(config->unit_notes.size() == 1);
  CHECK(contains(config->unit_notes[0], "no effect but through the unit's drop-in"));
}

TEST_CASE("limits that put the service beside the trainer are warned about, with their lines") {
  CHECK(load_text("[limits]\ncpu_weight = 99\nio_weight = 50\nmemory_max = \"9TiB\"\n")
            ->warnings.empty());

  const auto as_once_written =
      load_text("[limits]\ncpu_weight = 100\nio_weight = 100\nmemory_max = \"unlimited\"\n");
  REQUIRE(as_once_written.has_value());
  REQUIRE(as_once_written->warnings.size() == 3);
  CHECK(contains(as_once_written->warnings[0],
                 "evalcar.toml:2: limits.cpu_weight = 100 gives the service as much"));
  CHECK(contains(as_once_written->warnings[1], "limits.io_weight = 100"));
  CHECK(contains(as_once_written->warnings[2], "evalcar.toml:4: limits.memory_max"));
}

TEST_CASE("the unit's limits are a weight or a size, or what the unit has") {
  const auto none = load_text("");
  REQUIRE(none.has_value());
  CHECK_FALSE(none->settings.limits.cpu_weight.has_value());
  CHECK(none->settings.limits.memory_max.empty());

  const auto some =
      load_text("[limits]\ncpu_weight = 20\nio_weight = 30\nmemory_max = \"64GiB\"\n");
  REQUIRE(some.has_value());
  CHECK(some->settings.limits.cpu_weight == 20);
  CHECK(some->settings.limits.io_weight == 30);
  CHECK(some->settings.limits.memory_max == std::to_string(std::uint64_t{64} << 30U));
  CHECK(load_text("[limits]\nmemory_max = \"unlimited\"\n")->settings.limits.memory_max ==
        "infinity");

  CHECK(contains(problem_of("[limits]\ncpu_weight = 0\n"), "1 to 10000"));
  CHECK(contains(problem_of("[limits]\nio_weight = 10001\n"), "1 to 10000"));
  CHECK(contains(problem_of("[limits]\nmemory_max = \"much\"\n"), "expected"));
  CHECK(contains(problem_of("[limits]\nmemory_max = \"0B\"\n"), "at least \"1GiB\""));
  CHECK(contains(problem_of("[evaluate]\nresident_idle = \"0s\"\n"), "at least \"1s\""));
}

TEST_CASE("how long an evaluator without work stays is off or a duration") {
  CHECK_FALSE(load_text("")->settings.evaluate.resident_idle.has_value());
  const auto some = load_text("[evaluate]\nresident_idle = \"10min\"\n");
  REQUIRE(some.has_value());
  CHECK(some->settings.evaluate.resident_idle == std::chrono::minutes(10));
  CHECK_FALSE(problem_of("[evaluate]\nresident_idle = \"soon\"\n").empty());
}

TEST_CASE("the printed effective configuration parses back to itself and tells the sources") {
  const auto config =
      load_text("[watch]\noutput_dir = [\"/a \\\"b\\\"\", \"/c\"]\n[evaluate]\nlimit = 0.5\n",
                {{"evaluate.device", "cpu", "--device"}});
  REQUIRE(config.has_value());

  const std::string printed = print_effective(*config);

  CHECK(contains(printed, "evalcar.toml:2"));
  CHECK(contains(printed, "# --device"));
  CHECK(contains(printed, "# default"));
  const auto again = load_text(printed);
  REQUIRE(again.has_value());
  REQUIRE(again->entries.size() == config->entries.size());
  for (std::size_t i = 0; i < again->entries.size(); ++i) {
    CHECK(again->entries[i].literal == config->entries[i].literal);
  }
}

TEST_CASE("the commented file of init parses, and also with every comment sign removed") {
  const auto defaults = load(RealFileSystem(), "", {});
  const std::string file = commented_file(*defaults);
  CHECK(load_text(file).has_value());

  std::string uncommented;
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t end = file.find('\n', at);
    std::string line = file.substr(at, end - at);
    if (line.starts_with('#') && !line.starts_with("# ")) line.erase(0, 1);
    uncommented += line + "\n";
    at = end + 1;
  }
  const auto all = load_text(uncommented);
  REQUIRE(all.has_value());
  for (const Entry& entry : all->entries) {
    CAPTURE(entry.key->name);
    CHECK(entry.source != "default");
  }
}

TEST_CASE("the option --set needs a key and an equals sign") {
  CHECK_FALSE(parse_set_option("evaluate.tasks").has_value());
  CHECK_FALSE(parse_set_option("=x").has_value());
  const auto parsed = parse_set_option("evaluate.gen_kwargs=a=1");
  REQUIRE(parsed.has_value());
  CHECK(parsed->key == "evaluate.gen_kwargs");
  CHECK(parsed->text == "a=1");
}

TEST_CASE("durations and sizes read and print with their units") {
  CHECK(parse_duration("1.5h").value() == Duration(5'400'000));
  CHECK(parse_duration("0").value() == Duration(0));
  CHECK_FALSE(parse_duration("5").has_value());
  CHECK_FALSE(parse_duration("-5s").has_value());
  CHECK_FALSE(parse_duration("nan s").has_value());
  CHECK_FALSE(parse_duration("1e99d").has_value());
  CHECK_FALSE(parse_duration("1e3s").has_value());
  CHECK_FALSE(parse_duration("infs").has_value());
  CHECK_FALSE(parse_duration("0.1ms").has_value());  // it would be 0: off
  CHECK_FALSE(parse_duration("5s 3").has_value());
  CHECK_FALSE(parse_duration(" 5s").has_value());
  CHECK(format_duration(Duration(90'000)) == "90s");
  CHECK(format_duration(Duration(120'000)) == "2min");
  CHECK(parse_bytes("1.5KiB").value() == 1536);
  CHECK(parse_bytes("2GB").value() == 2'000'000'000);
  CHECK_FALSE(parse_bytes("2G").has_value());
  CHECK(format_bytes(1536) == "1.5 KiB");
}

TEST_CASE("a limit of pixels that is set to its default is set") {
  const auto set_in = [](const std::string& text) {
    const EvaluateSettings evaluate = load_text(text)->settings.evaluate;
    return std::pair(evaluate.max_pixels_set, evaluate.min_pixels_set);
  };

  CHECK(set_in("") == std::pair(false, false));
  CHECK(set_in("[evaluate]\nmax_pixels = 1605632\n") == std::pair(true, false));
  CHECK(set_in("[evaluate]\nmin_pixels = 200_704\n") == std::pair(false, true));
  CHECK(set_in("[evaluate]\nmax_pixels = 1605633\n") == std::pair(false, false));
}

TEST_CASE("an attention that does not exist is refused at the start, with those that do") {
  const std::string problem = problem_of("[evaluate]\nattn_implementation = \"flash\"\n");
  CHECK(contains(problem, "evaluate.attn_implementation"));
  CHECK(contains(
      problem, "attn_implementation must be one of [None, 'flash_attention_2', 'sdpa', 'eager']"));
  CHECK(contains(problem, "seen \"flash\""));
  CHECK(load_text("[evaluate]\nattn_implementation = \"sdpa\"\n").has_value());
}

TEST_CASE("evaluate.preempt where nothing can make way by it is warned of") {
  const auto warnings_of = [](const std::string& rest) {
    const auto config = load_text("[evaluate]\npreempt = true\n" + rest);
    REQUIRE(config.has_value());
    return config->warnings;
  };
  CHECK(warnings_of("").empty());
  REQUIRE(warnings_of("policy = \"every\"\n").size() == 1);
  CHECK(contains(warnings_of("policy = \"every\"\n")[0], "evaluate.policy"));
  REQUIRE(warnings_of("anytime = []\n").size() == 1);
  CHECK(contains(warnings_of("anytime = []\n")[0], "evaluate.anytime"));
  CHECK(load_text("[evaluate]\nanytime = []\npolicy = \"every\"\n")->warnings.empty());
}

TEST_CASE(
    "tasks named on the command line leave the cadences of the file's others without effect") {
  const std::string text =
      "[evaluate]\ntasks = [\"docvqa_val\", \"mmmu_val\"]\ntask_every_nth = [\"mmmu_val=4\"]\n";
  const auto config = load_text(text, {{"evaluate.tasks", "docvqa_val", "--tasks"}});
  REQUIRE(config.has_value());
  REQUIRE(config->warnings.size() == 1);
  CHECK(contains(config->warnings[0], "mmmu_val"));

  // A typing error stays one: in the file, and where both are named on the command line.
  CHECK_FALSE(load_text("[evaluate]\ntasks = [\"docvqa_val\"]\ntask_every_nth = [\"mmmu=4\"]\n")
                  .has_value());
  CHECK_FALSE(load_text(text, {{"evaluate.tasks", "docvqa_val", "--tasks"},
                               {"evaluate.task_every_nth", "mmmu=4", "--set"}})
                  .has_value());
}
