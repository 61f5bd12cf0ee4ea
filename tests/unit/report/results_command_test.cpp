#include "agent/cli/results_command.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/cli/plot.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::cli;
using nlohmann::json;
using test::must;

namespace {

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

/// Steps 100, 200, 300: regular 0.2, 0.6, 0.6; EMA 0.1, 0.3, 0.5.
struct Run {
  test::Scenario s;
  ResultsOptions options;
  Run() {
    const double regular[] = {0.2, 0.6, 0.6};
    const double ema[] = {0.1, 0.3, 0.5};
    for (int i = 0; i < 3; ++i) {
      add(100 * (i + 1), "regular", regular[i]);
      add(100 * (i + 1), "ema", ema[i]);
    }
    options.database.db = s.db();
  }
  void add(std::int64_t step, const std::string& kind, double value) {
    const std::int64_t id = s.plan(step, {"docvqa_val"}, kind).id;
    s.bring(id, state::EvaluationState::kScored, kind + std::to_string(step), value);
  }
  Ran run() {
    std::ostringstream out;
    std::ostringstream err;
    const int code = run_results(options, s.files, s.clock, out, err);
    return {code, out.str(), err.str()};
  }
};

}  // namespace

TEST_CASE("results as a table have a line a step and a column a kind, with errors") {
  Run r;
  const Ran ran = r.run();
  CHECK(ran.code == 0);
  CHECK(ran.out ==
        "|Step|Task      |Metric|n  |regular        |EMA            |\n"
        "|---:|----------|------|--:|--------------:|--------------:|\n"
        "| 100|docvqa_val|anls  |  2|0.2000 ± 0.2500|0.1000 ± 0.2500|\n"
        "| 200|docvqa_val|anls  |  2|0.6000 ± 0.2500|0.3000 ± 0.2500|\n"
        "| 300|docvqa_val|anls  |  2|0.6000 ± 0.2500|0.5000 ± 0.2500|\n"
        "\n"
        "|Task      |Metric|Weights|Trend|Latest|Best              |\n"
        "|----------|------|-------|-----|-----:|-----------------:|\n"
        "|docvqa_val|anls  |ema    |▁▄█  |0.5000|0.5000 at step 300|\n"
        "|docvqa_val|anls  |regular|▁██  |0.6000|0.6000 at step 200|\n");
}

TEST_CASE("results as JSON are one list with the contract's fields") {
  Run r;
  r.options.format = "json";
  r.options.weights = "ema";
  const json list = json::parse(r.run().out);
  REQUIRE(list.size() == 3);
  CHECK(list[0]["run"] == "run-01234567-1");
  CHECK(list[0]["step"] == 100);
  CHECK(list[0]["checkpoint_type"] == "ema");
  CHECK(list[0]["task"] == "docvqa_val");
  CHECK(list[0]["metric"] == "anls");
  CHECK(list[0]["value"] == 0.1);
  CHECK(list[0]["stderr"] == 0.25);
  CHECK(list[0]["n"] == 2);
  CHECK(list[0]["weights_sha256"] == "ema100");
  CHECK(list[0]["finished_at"].get<std::string>().ends_with("Z"));
}

TEST_CASE("results as CSV have the same fields, one line a number") {
  Run r;
  r.options.format = "csv";
  r.options.best = true;
  const std::string out = r.run().out;
  CHECK(out.starts_with("run,step,checkpoint_type,task,metric,value,stderr,n,"));
  CHECK(std::count(out.begin(), out.end(), '\n') == 3);
  CHECK(out.find("run-01234567-1,200,regular,docvqa_val,anls,0.6,0.25,2,regular200,") !=
        std::string::npos);
}

TEST_CASE("the best of equals is the first") {
  Run r;
  r.options.best = true;
  r.options.format = "json";
  const json list = json::parse(r.run().out);
  REQUIRE(list.size() == 2);
  CHECK(list[0]["step"] == 300);  // EMA
  CHECK(list[1]["step"] == 200);
}

TEST_CASE("numbers of other settings are shown, but are in no trend, no plot and never the best") {
  Run r;
  const std::int64_t id = r.s.plan_limited(400, 4).id;
  r.s.bring(id, state::EvaluationState::kScored, "regular400", 0.05);
  r.s.configure(4);
  const Ran all = r.run();
  INFO(all.out);
  CHECK(all.out.find("0.6000 ± 0.2500 †") != std::string::npos);
  CHECK(all.out.find("|  0.0500 ± 0.2500|") != std::string::npos);
  CHECK(all.out.find("† measured with other settings") != std::string::npos);
  CHECK(all.out.find("Trend") == std::string::npos);

  r.options.best = true;
  r.options.format = "json";
  const json best = json::parse(r.run().out);
  REQUIRE(best.size() == 1);
  CHECK(best[0]["step"] == 400);
  CHECK(best[0]["configured"] == true);
}

TEST_CASE("two steps that were measured with other settings are not compared") {
  Run r;
  const std::int64_t id = r.s.plan_limited(400, 4).id;
  r.s.bring(id, state::EvaluationState::kScored, "regular400", 0.05);
  r.options.compare = {300, 400};
  r.options.format = "json";

  const Ran ran = r.run();

  CHECK(json::parse(ran.out).empty());
  CHECK(ran.err.find("docvqa_val anls regular: the two steps were measured with other settings") !=
        std::string::npos);
}

TEST_CASE("two steps are compared by a paired test of their samples") {
  Run r;
  r.options.compare = {100, 200};
  CHECK(r.run().out ==
        "|Task      |Metric|Weights|step 100|step 200|Difference      |      |p     |Test          "
        "                |\n"
        "|----------|------|-------|-------:|-------:|---------------:|------|-----:|--------------"
        "----------------|\n"
        "|docvqa_val|anls  |ema    |  0.1000|  0.3000|+0.2000 ± 0.0000|better|0.5000|sign-flip "
        "permutation, 2 pairs|\n"
        "|docvqa_val|anls  |regular|  0.2000|  0.6000|+0.4000 ± 0.0000|better|0.5000|sign-flip "
        "permutation, 2 pairs|\n"
        "\n"
        "|Task      |Weights|Doc|Became|step 100|step 200|Expected|\n"
        "|----------|-------|--:|------|--------|--------|--------|\n"
        "|docvqa_val|regular|  0|right |A       |A       |['A']   |\n"
        "|docvqa_val|regular|  1|right |A       |A       |['A']   |\n");
  r.options.compare = {100, 999};
  const Ran none = r.run();
  CHECK(none.code == 3);
  CHECK(none.out.empty());
}

TEST_CASE("a comparison lists the samples that flipped, CSV only counts them") {
  Run r;
  const auto id = r.s.plan(400).id;
  r.s.bring(id, state::EvaluationState::kEvaluating, "w400");
  must(r.s.store->record_samples(
      id, std::vector<protocol::Scored>{
              {"", "docvqa_val", 0,
               R"({"doc_id": 0, "target": "['A']", "filtered_resps": "a long\nanswer", "anls": 0})",
               "f1"}}));
  protocol::EvaluationResult result;
  result.weights_sha256 = "w400";
  result.tasks = {test::anls_result("docvqa_val", 0)};
  must(r.s.store->record_result(id, result));
  r.options.compare = {200, 400};
  const std::string table = r.run().out;
  CHECK(table.find("|docvqa_val|regular|  0|wrong |A       |a long answer|['A']   |") !=
        std::string::npos);
  // Not every sample has a partner: the error is that of two independent numbers, and there is no
  // p.
  CHECK(table.find("-0.6000 ± 0.3536|worse|") != std::string::npos);
  CHECK(table.find("|only 1 samples have a partner|") != std::string::npos);
  r.options.format = "json";
  const json list = json::parse(r.run().out);
  REQUIRE(list.size() == 1);
  CHECK(list[0]["flipped"].size() == 1);
  CHECK(list[0]["flipped"][0]["became"] == "wrong");
  CHECK(list[0]["became_wrong"] == 1);
  CHECK(list[0]["pairs"] == 1);
  CHECK(list[0]["note"] == "only 1 samples have a partner");
  CHECK(list[0]["test"].is_null());
  CHECK(list[0]["p"].is_null());
  r.options.format = "csv";
  const std::string csv = r.run().out;
  CHECK(csv.find("flipped") == std::string::npos);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 2);
}

TEST_CASE("a number that its samples do not make up has no test") {
  Run r;
  const auto id = r.s.plan(400).id;
  r.s.bring(id, state::EvaluationState::kEvaluating, "w400");
  std::vector<protocol::Scored> samples;
  for (std::int64_t doc = 0; doc < 2; ++doc) {
    samples.push_back(
        {"", "docvqa_val", doc,
         "{\"doc_id\": " + std::to_string(doc) + ", \"target\": \"['A']\", \"anls\": 1}", "f1"});
  }
  must(r.s.store->record_samples(id, samples));
  protocol::EvaluationResult result;
  result.weights_sha256 = "w400";
  result.tasks = {test::anls_result("docvqa_val", 250)};  // as MME's, a sum
  must(r.s.store->record_result(id, result));
  r.options.compare = {200, 400};
  r.options.format = "json";

  const json list = json::parse(r.run().out);

  REQUIRE(list.size() == 1);
  CHECK(list[0]["test"].is_null());
  CHECK(list[0]["p"].is_null());
  CHECK(list[0]["pairs"] == 0);
  CHECK(list[0]["stderr_of"] == "independent");
  CHECK(list[0]["note"] == "no test: the metric is not the mean of what its samples score");
}

TEST_CASE("where kinds have numbers of as many documents as others, each is told") {
  Run r;
  const auto id = r.s.plan(100, {"docvqa_val"}, "average").id;
  r.s.bring(id, state::EvaluationState::kEvaluating, "average100");
  protocol::EvaluationResult result;
  result.weights_sha256 = "average100";
  result.tasks = {test::anls_result("docvqa_val", 0.5)};
  result.tasks[0].n = 7;
  must(r.s.store->record_result(id, result));

  CHECK(r.run().out.find("| 100|docvqa_val|anls  |2 / 2 / 7|") != std::string::npos);
}

TEST_CASE("an alias names its metric, an unknown one matches nothing") {
  Run r;
  r.options.metric = "similarity";
  CHECK(r.run().code == 3);
  r.options.resolve_alias = [](const std::string&, const std::string& name) {
    return name == "similarity" ? std::string("anls") : std::string();
  };
  CHECK(r.run().code == 0);
}

TEST_CASE("a run is chosen by its name or a prefix that only it has") {
  Run r;
  r.options.run = "run-0";
  CHECK(r.run().code == 0);
  r.options.run = "other";
  const Ran ran = r.run();
  CHECK(ran.code == 2);
  CHECK(ran.err.find("run-01234567-1") != std::string::npos);
  must(r.s.store->ensure_run("run-01234567", "/out/run", 1, 99));
  r.options.run = "run-0";
  CHECK(r.run().code == 2);
  r.options.run = "";
  CHECK(r.run().code == 3);  // the newest generation has no number yet
}

TEST_CASE("a wrong format is a usage error, no database is nothing to do, JSON stays JSON") {
  Run r;
  r.options.format = "xml";
  CHECK(r.run().code == 2);
  r.options.format = "json";
  r.options.task = "mmmu_val";
  const Ran none = r.run();
  CHECK(none.code == 3);
  CHECK(json::parse(none.out).empty());
  r.options.database.db = r.s.folder / "none.db";
  CHECK(r.run().code == 3);
}

TEST_CASE("the plot has a panel a metric, a line and error bars a kind, and is well formed") {
  Run r;
  r.options.plot = r.s.folder / "curve.svg";
  const Ran ran = r.run();
  REQUIRE(ran.code == 0);
  std::ifstream file(r.options.plot);
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find("docvqa_val · anls") != std::string::npos);
  CHECK(svg.find(">regular<") != std::string::npos);
  CHECK(svg.find(">EMA<") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  std::size_t points = 0;
  for (std::size_t at = 0; (at = svg.find("<title>", at)) != std::string::npos; ++at) ++points;
  CHECK(points == 6);
}

TEST_CASE("ticks are round, rise, and hold the data between them") {
  CHECK(axis_ticks(0.0, 1.0, 5) == std::vector<double>{0.0, 0.2, 0.4, 0.2 * 3, 0.8, 1.0});
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0.31, 0.34}, {-5, 5}, {100, 100}, {0, 1e6}, {0.999, 1.0}, {1e-9, 2e-9}, {12, 13}}) {
    const std::vector<double> ticks = axis_ticks(low, high, 5);
    INFO(low << " … " << high);
    REQUIRE(ticks.size() >= 2);
    CHECK(ticks.size() <= 12);
    CHECK(ticks.front() <= low + 1e-12);
    CHECK(ticks.back() >= high - 1e-12);
    CHECK(std::is_sorted(ticks.begin(), ticks.end()));
  }
}

TEST_CASE("a plot of one point, of no error and of hostile names is still a picture") {
  const std::string svg = render_svg(
      "<run> & \"more\"", {{"a<b>\x01", {{"regular", {{5, 0.0, std::nullopt}}}}}, {"empty", {}}});
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(svg.find("&lt;run&gt; &amp; &quot;more&quot;") != std::string::npos);
  CHECK(svg.find('\x01') == std::string::npos);
}
