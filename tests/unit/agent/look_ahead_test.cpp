// What the evaluator is told to read ahead: the choice of agent/schedule over real rows and leases.
#include "agent/run/look_ahead.h"

#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/agent/working_agent.h"
#include "tests/unit/checkpoint/torch_files.h"

using namespace evalcar;
using evalcar::testing::Working;
using std::chrono::seconds;
using enum evalcar::state::EvaluationState;

namespace {

using Names = std::vector<std::string>;

/// Evaluations last until the test ends them.
struct Ahead : Working {
  explicit Ahead(config::Policy policy = config::Policy::kEvery) {
    settings.evaluate.policy = policy;
    at_evaluate = [] {};
  }
  void save_all(const std::vector<std::int64_t>& steps) {
    for (const std::int64_t step : steps) save(step);
  }
  /// As lmms-engine's trainer with EMA.
  void save_with_ema(std::int64_t step) {
    const std::string path = "/out/checkpoint-" + std::to_string(step) + "/";
    const std::string shard =
        checkpoint::testing::make_zip({{.name = "archive/data.pkl", .data = "x"}});
    for (const char* const kind : {"pytorch_model_fsdp_0", "pytorch_ema_model_fsdp_0"})
      files.put_file(path + kind + "/model_world_size_1_rank_0.pt", shard);
    for (const char* const name :
         {"tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"})
      files.put_file(path + name, "{}");
    files.put_file(path + "config.json", R"({"model_type":"qwen2_5_vl","architectures":["X"]})");
  }
  void finish() {
    say_result();
    turns(4);
  }
  void die(const std::string& evidence = "signal 11", std::optional<int> signal = 11) {
    script.pending.emplace_back(supervise::Exited{evidence, {}, signal});
    turns(2);
  }
  /// Names of the leases that were loaded, and of those that were told, in order.
  Names loads() const { return names_of<protocol::Load>(); }
  Names told() const { return names_of<protocol::Prefetch>(); }
  template <typename Message>
  Names names_of() const {
    Names names;
    for (const auto& message : script.received_of<Message>()) {
      CHECK(message.dir.ends_with(message.weights));
      names.push_back(base_name(message.dir));
    }
    return names;
  }
};

}  // namespace

TEST_CASE("what the policy takes next is read ahead, and told once") {
  const bool newest_first = GENERATE(false, true);
  const std::string first = newest_first ? "15-1-regular" : "5-1-regular";
  const std::string second = "10-1-regular";
  const std::string third = newest_first ? "5-1-regular" : "15-1-regular";
  Ahead w(newest_first ? config::Policy::kNewestFirst : config::Policy::kEvery);
  w.settings.evaluate.base_model = "/models/base";
  w.settings.evaluate.dtype = "float32";
  w.save_all({5, 10, 15});
  w.begin();
  w.turns(20);

  REQUIRE(w.loads() == Names{first});
  CHECK(w.told() == Names{second});
  const protocol::Prefetch told = w.script.received_of<protocol::Prefetch>().at(0);
  w.finish();
  REQUIRE(w.loads() == Names{first, second});
  CHECK(w.told() == Names{second, third});
  // The evaluator knows by these that it is what it has read.
  CHECK(told == protocol::Prefetch{w.loaded.dir, "regular", "float32", "/models/base"});
  w.finish();
  w.finish();
  CHECK(w.loads() == Names{first, second, third});
  CHECK(w.told() == Names{second, third});
}

TEST_CASE("nothing is read ahead while weights are loaded, nor where it is not wanted") {
  Ahead w;
  const bool wanted = GENERATE(true, false);
  w.settings.evaluate.prefetch = wanted;
  w.at_load[5] = [](const auto&) {};
  w.save_all({5, 10});
  w.begin();
  w.turns(10);
  REQUIRE(w.loads() == Names{"5-1-regular"});
  CHECK(w.told().empty());

  w.say_loaded();
  w.turns(10);

  CHECK(w.told() == (wanted ? Names{"10-1-regular"} : Names{}));
}

TEST_CASE("a newer checkpoint takes the place of the one that was read ahead") {
  Ahead w(config::Policy::kNewestFirst);
  w.save_all({5, 10});
  w.begin();
  w.turns(4);
  REQUIRE(w.told() == Names{"5-1-regular"});

  w.save(15);
  w.turns(4);

  CHECK(w.loads() == Names{"10-1-regular"});
  CHECK(w.told() == Names{"5-1-regular", "15-1-regular"});
}

TEST_CASE("a look ahead gives up nothing that the policy would give up, and skips it") {
  Ahead w(config::Policy::kLatest);
  w.save(5);
  w.begin();
  w.turns(4);
  CHECK(w.told().empty());
  w.save_all({10, 15});
  w.turns(10);

  CHECK(w.told().back() == "15-1-regular");
  CHECK(w.states().at("10 docvqa_val") == kLeased);
  const std::size_t told = w.told().size();
  w.finish();
  CHECK(w.loads() == Names{"5-1-regular", "15-1-regular"});
  CHECK(w.states().at("10 docvqa_val") == kSuperseded);
  CHECK(w.told().size() == told);
}

TEST_CASE("the EMA weights of the checkpoint that is evaluated are read ahead") {
  Ahead w;
  w.save_with_ema(5);
  w.begin();
  w.turns(40);

  CHECK(w.loads() == Names{"5-1-regular"});
  CHECK(w.told() == Names{"5-1-ema"});
}

TEST_CASE("the weights that are evaluated are not read ahead for other tasks of theirs") {
  Ahead w;
  w.settings.evaluate.tasks = {"docvqa_val", "mmmu_val"};
  w.settings.evaluate.task_every_nth = {{"mmmu_val", 2}};
  w.save(5);
  w.begin();
  w.turns(20);
  REQUIRE(w.states().at("5 mmmu_val") == kLeased);

  CHECK(w.loads() == Names{"5-1-regular"});
  CHECK(w.told().empty());
}

TEST_CASE("what lost its lease is not read ahead, and nothing is leased for a look") {
  Ahead w;
  w.at_load[5] = [](const auto&) {};
  w.save_all({5, 10, 15});
  w.begin();
  w.turns(6);
  const std::string lease = "/out/_evalcar/leases/10-1-regular";
  REQUIRE(w.files.exists(lease));
  test::must(remove_tree(w.files, lease));
  w.say_loaded();
  w.turns(20);

  CHECK(w.told().empty());
  CHECK_FALSE(w.files.exists(lease));
  w.finish();  // it is leased again in its turn
  CHECK(w.loads() == Names{"5-1-regular", "10-1-regular"});
}

TEST_CASE("what was read ahead is told again where another was loaded first") {
  Ahead w(config::Policy::kNewestFirst);
  w.save_all({5, 10});
  w.begin();
  w.turns(4);
  REQUIRE(w.told() == Names{"5-1-regular"});

  w.save(15);
  w.finish();

  CHECK(w.loads() == Names{"10-1-regular", "15-1-regular"});
  CHECK(w.told() == Names{"5-1-regular", "5-1-regular"});
}

TEST_CASE("another process of the evaluator is told again") {
  Ahead w;
  w.save_all({5, 10});
  w.begin();
  w.turns(4);
  REQUIRE(w.told() == Names{"10-1-regular"});

  w.agent.reset();
  w.script.running = false;
  w.begin();
  w.turns(6);

  CHECK(w.script.starts == 2);
  CHECK(w.loads() == Names{"5-1-regular", "5-1-regular"});
  CHECK(w.told() == Names{"10-1-regular", "10-1-regular"});
}

TEST_CASE("an evaluation that failed is neither read ahead nor measured beside a reading") {
  Ahead w;
  w.settings.limits.attempts = 100;
  w.save_all({5, 10});
  w.begin();
  w.turns(4);
  REQUIRE(w.told() == Names{"10-1-regular"});

  w.die();
  w.turns(30);  // its next try is due
  REQUIRE(w.loads() == Names{"5-1-regular", "10-1-regular"});
  CHECK(w.told() == Names{"10-1-regular"});
  w.save(15);
  w.finish();
  w.turns(20);

  CHECK(w.loads() == Names{"5-1-regular", "10-1-regular", "5-1-regular"});
  CHECK(w.told() == Names{"10-1-regular"});
}

TEST_CASE("a process that ends without having been told keeps nothing from being read ahead") {
  Ahead w;
  w.settings.limits.attempts = 100;
  w.save(5);
  w.begin();
  w.turns(4);
  w.settings.limits.retry_delay = seconds(1000);
  w.die("signal 9 (Killed)", 9);
  w.save_all({10, 15});
  w.turns(6);

  CHECK(w.loads() == Names{"5-1-regular", "10-1-regular"});
  CHECK(w.told() == Names{"15-1-regular"});
}

TEST_CASE("nothing is read ahead any more once memory ran out over it, or two processes ended") {
  Ahead w;
  w.settings.limits.attempts = 100;
  w.settings.limits.retry_delay = seconds(1000);
  w.save_all({5, 10, 15, 20, 25, 30});
  w.begin();
  w.turns(4);
  REQUIRE(w.told() == Names{"10-1-regular"});

  SECTION("memory") {
    w.die("signal 9 (Killed)", 9);
    w.turns(6);
    REQUIRE(w.loads().size() == 2);
    w.finish();
    w.turns(6);
    REQUIRE(w.loads().size() == 3);
    CHECK(w.told() == Names{"10-1-regular"});
  }
  SECTION("two in a row") {
    w.die();
    w.turns(6);
    CHECK(w.told() == Names{"10-1-regular", "15-1-regular"});
    w.die();
    w.turns(6);
    REQUIRE(w.loads().size() == 3);
    CHECK(w.told() == Names{"10-1-regular", "15-1-regular"});
  }
  SECTION("not in a row") {
    w.die();
    w.turns(6);
    w.finish();
    w.die();
    w.turns(6);
    REQUIRE(w.loads().size() == 4);
    CHECK(w.told() == Names{"10-1-regular", "15-1-regular", "20-1-regular", "25-1-regular"});
  }
}
