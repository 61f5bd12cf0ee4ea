// Which documents are answered first where scores of parts are wanted.
#include "evaluator/service/anytime.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <set>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::service;

namespace {

const std::vector<double> kFractions = {0.1, 0.3};

std::vector<std::int64_t> ids(std::int64_t count, std::int64_t first = 0) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(count));
  std::iota(found.begin(), found.end(), first);
  return found;
}

/// `each` documents about each picture.
std::vector<std::uint64_t> units(std::size_t documents, std::size_t each = 1) {
  std::vector<std::uint64_t> found(documents);
  for (std::size_t d = 0; d < documents; ++d) found[d] = 7 + d / each;
  return found;
}

}  // namespace

TEST_CASE("parts are drawn at random, the same ones each time, each within the next") {
  const auto parts = parts_of("docvqa_val", 0, ids(1000), units(1000), kFractions);

  REQUIRE(parts.size() == 2);
  CHECK(parts[0].documents.size() == 100);
  CHECK(parts[1].documents.size() == 300);
  CHECK(std::ranges::is_sorted(parts[0].documents));
  CHECK(std::ranges::includes(parts[1].documents, parts[0].documents));
  CHECK(parts == parts_of("docvqa_val", 0, ids(1000), units(1000), kFractions));
  CHECK(parts != parts_of("docvqa_val", 1, ids(1000), units(1000), kFractions));
  CHECK(parts != parts_of("textvqa_val", 0, ids(1000), units(1000), kFractions));
  // Spread over all: of each quarter about a quarter (the 0.1 % bounds of a hypergeometric draw).
  for (std::size_t quarter = 0; quarter < 4; ++quarter) {
    const auto of_it = std::ranges::count_if(parts[1].documents,
                                             [&](std::size_t d) { return d / 250 == quarter; });
    CHECK(of_it > 50);
    CHECK(of_it < 100);
  }
}

TEST_CASE("documents about one picture are answered together") {
  const auto parts = parts_of("docvqa_val", 0, ids(1000, 40), units(1000, 8), kFractions);

  REQUIRE(parts.size() == 2);
  for (const Part& part : parts) {
    std::set<std::size_t> pictures;
    for (const std::size_t d : part.documents) pictures.insert(d / 8);
    CHECK(part.documents.size() == pictures.size() * 8);
  }
  CHECK(parts[0].documents.size() == 104);  // whole pictures, at least a tenth
}

TEST_CASE("a part of too few documents, or of all, gets no score") {
  CHECK(parts_of("t", 0, ids(66), units(66), kFractions).size() == 1);
  CHECK(parts_of("t", 0, ids(66), units(66), kFractions)[0].documents.size() == 20);
  CHECK(parts_of("t", 0, ids(63), units(63), kFractions).empty());
  CHECK(parts_of("t", 0, ids(1000), units(1000, 1000), kFractions).empty());
  CHECK(parts_of("t", 0, ids(1000), units(1000), {}).empty());
  const auto same = parts_of("t", 0, ids(1000), units(1000, 400), kFractions);
  CHECK(same.size() == 1);  // 10 % and 30 % are the same picture
}

TEST_CASE("each document has the stage of the first part that holds it") {
  const auto parts = parts_of("t", 0, ids(66), units(66), kFractions);
  const auto stages = stages_of(66, parts, kFractions);

  CHECK(std::ranges::count(stages, 0U) == 0);  // 10 % of it were too few
  CHECK(std::ranges::count(stages, 1U) == 20);
  CHECK(std::ranges::count(stages, 2U) == 46);
  for (const std::size_t d : parts[0].documents) CHECK(stages[d] == 1);
}

TEST_CASE(
    "a part of pairs keeps their standard error, one of single answers gets that of pictures") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  std::string lines;
  for (int d = 0; d < 40; ++d) {
    lines += R"({"question": "q", "answer": ")" + std::string(d % 2 == 0 ? "yes" : "no") +
             R"(", "category": "count", "question_id": ")" + std::to_string(d / 2) + "\"}\n";
  }
  files.put_file("/t/val.jsonl", lines);
  const std::string head = "[data]\nfiles = \"val.jsonl\"\n[columns]\ntarget = \"answer\"\n";
  files.put_file("/t/pairs.toml", "task = \"pairs\"\n" + head +
                                      "[prompt]\nbuilder = \"mme\"\n[scorer]\nname = \"mme\"\n");
  files.put_file("/t/single.toml",
                 "task = \"single\"\n" + head +
                     "[prompt]\ntext = \"{question}\"\n[scorer]\nname = \"exact_match\"\n");
  const auto score_of = [&](const std::string& name) {
    TaskJob job;
    job.name = name;
    job.task = tasks::Task::open(files, tasks::find_task(files, "/t", name).value(), "").value();
    job.documents = ids(40);
    job.units = units(40, 2);
    Part part{0.5, {}};
    for (std::int64_t d = 0; d < 40; ++d) {  // every other pair is right
      const std::string answer = (d / 2) % 2 == 0 ? "x" : d % 2 == 0 ? "yes" : "no";
      job.responses.push_back({d, answer, 1});
      job.inputs.emplace_back("q");
      part.documents.push_back(static_cast<std::size_t>(d));
    }
    return interim_score(job, part, {.bootstrap_iters = 4000}).value().metrics.front();
  };

  const protocol::Metric pairs = score_of("pairs");
  const protocol::Metric single = score_of("single");

  CHECK(pairs.value == 100);
  CHECK(pairs.stderr_source == "bootstrap");
  // Twenty pairs of 0 or 200 points: 100/√20 = 22.4.
  CHECK((pairs.stderr_value > 21 && pairs.stderr_value < 24));
  CHECK(single.value == 0.5);
  CHECK(single.stderr_source == "clustered");
}

TEST_CASE("a part that lacks a category of MME says nothing of the sum over all") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  std::string lines;
  const std::vector<std::string> categories = {"count", "OCR", "code_reasoning"};
  for (int d = 0; d < 12; ++d) {
    lines += R"({"question": "q", "answer": "yes", "category": ")" +
             categories[static_cast<std::size_t>(d) / 4] + R"(", "question_id": ")" +
             std::to_string(d / 2) + "\"}\n";
  }
  files.put_file("/t/val.jsonl", lines);
  files.put_file("/t/own.toml",
                 "task = \"own\"\n[data]\nfiles = \"val.jsonl\"\n[columns]\ntarget = "
                 "\"answer\"\n[prompt]\nbuilder = \"mme\"\n[scorer]\nname = \"mme\"\n");
  TaskJob job;
  job.name = "own";
  job.task = tasks::Task::open(files, tasks::find_task(files, "/t", "own").value(), "").value();
  job.documents = ids(12);
  job.units = units(12, 2);
  for (std::int64_t d = 0; d < 12; ++d) {
    job.responses.push_back({d, "yes", 1});
    job.inputs.emplace_back("q");
  }
  const auto metrics_of = [&job](std::vector<std::size_t> documents) {
    return interim_score(job, {0.5, std::move(documents)}, {}).value().metrics;
  };

  // Of both perception categories, and of the only other one.
  const auto whole = metrics_of({0, 1, 4, 5, 8, 9});
  CHECK(whole[0].value == 400);
  CHECK(whole[1].value == 200);
  const auto part = metrics_of({0, 1, 2, 3, 8, 9});
  CHECK_FALSE(part[0].value.has_value());
  CHECK_FALSE(part[0].stderr_value.has_value());
  CHECK(part[0].missing == "the sum of 2 categories, and this part has documents of 1");
  CHECK(part[1].value == 200);
}

TEST_CASE("fractions that make no sense are refused") {
  CHECK(check_fractions(std::vector<double>{0.1, 0.3}).has_value());
  CHECK(check_fractions({}).has_value());
  for (const std::vector<double>& bad :
       {std::vector<double>{0.3, 0.1}, {0.1, 0.1}, {0.0}, {1.0}, {-0.5}}) {
    CHECK_FALSE(check_fractions(bad).has_value());
  }
}
