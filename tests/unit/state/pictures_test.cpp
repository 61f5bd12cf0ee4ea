// Which pictures samples have: told with each checkpoint, kept once.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "store/state/picture_names.h"
#include "store/state/sqlite.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;
using enum EvaluationState;

namespace {

std::string picture(char letter) { return std::string(64, letter) + ".jpg"; }

protocol::Scored sample(std::int64_t doc, std::vector<std::string> pictures,
                        const std::string& fingerprint = "f1") {
  return {"", "docvqa_val", doc, R"({"doc_id":0})", fingerprint, std::move(pictures)};
}

struct Pictures : Scenario {
  /// An evaluation of this step with these samples, published.
  std::int64_t measured(std::int64_t step, const std::vector<protocol::Scored>& samples) {
    const std::int64_t id = plan(step).id;
    bring(id, kEvaluating, "w" + std::to_string(step));
    must(store->record_samples(id, samples));
    protocol::EvaluationResult result;
    result.weights_sha256 = "w" + std::to_string(step);
    result.tasks = {test::anls_result("docvqa_val", 0.5, samples.at(0).fingerprint)};
    must(store->record_result(id, result));
    must(store->begin_publication(
        id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("{}"); }));
    must(store->finish_publication(id, {}));
    return id;
  }
  std::vector<std::string> of(std::int64_t id, std::int64_t doc) const {
    return must(store->read().sample_pictures(id, "docvqa_val", doc));
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    must(add_picture_names(db(), all));
    return all;
  }
  std::string cell(const std::string& sql) const {
    return must(must(Connection::open(db(), Connection::Mode::kReadOnly, 100))->first_text(sql));
  }
};

}  // namespace

TEST_CASE("the pictures of a sample come back in their order, and a sample may have none") {
  Pictures s;
  const auto id =
      s.measured(5, {sample(0, {picture('b'), picture('a'), picture('b')}), sample(1, {})});

  CHECK(s.of(id, 0) == std::vector<std::string>{picture('b'), picture('a'), picture('b')});
  CHECK(s.of(id, 1).empty());
  CHECK(s.of(id, 2).empty());
  CHECK(s.cell("SELECT pictures FROM samples WHERE doc_id = 1") == "[]");
}

TEST_CASE("the second checkpoint adds no row for pictures, another fingerprint has its own") {
  Pictures s;
  s.measured(5, {sample(0, {picture('a')}), sample(1, {picture('b')})});
  const auto second = s.measured(10, {sample(0, {picture('a')}), sample(1, {picture('b')})});
  CHECK(s.cell("SELECT count(*) FROM document_pictures") == "2");
  CHECK(s.of(second, 1) == std::vector<std::string>{picture('b')});

  const auto third = s.measured(15, {sample(0, {picture('c')}, "f2")});

  CHECK(s.of(third, 0) == std::vector<std::string>{picture('c')});
  CHECK(s.of(second, 0) == std::vector<std::string>{picture('a')});
}

TEST_CASE("a checkpoint that tells no pictures takes none from those before") {
  Pictures s;
  const auto first = s.measured(5, {sample(0, {picture('a')})});
  const auto second = s.measured(10, {sample(0, {})});  // limits.sample_pictures = 0 meanwhile

  CHECK(s.of(first, 0) == std::vector<std::string>{picture('a')});
  CHECK(s.of(second, 0) == std::vector<std::string>{picture('a')});
}

TEST_CASE("pruning forgets the pictures that no sample has any more") {
  Pictures s;
  const auto first = s.measured(5, {sample(0, {picture('a')}, "old")});
  const auto second = s.measured(10, {sample(0, {picture('b')})});
  const auto third = s.measured(15, {sample(0, {picture('b')})});

  must(s.store->prune(second, std::array{second}));
  CHECK(s.names() == std::set<std::string>{picture('a'), picture('b')});
  must(s.store->prune(first, std::array{first}));
  CHECK(s.names() == std::set<std::string>{picture('b')});
  CHECK(s.of(third, 0) == std::vector<std::string>{picture('b')});
}

TEST_CASE("pruning leaves the pictures of the evaluation that runs") {
  Pictures s;
  const auto done = s.measured(5, {sample(0, {picture('a')}, "old")});
  const auto running = s.plan(10).id;
  s.bring(running, kEvaluating, "w10");
  must(s.store->record_samples(running, std::vector{sample(0, {picture('b')}, "new")}));

  must(s.store->prune(done, std::array{done}));

  CHECK(s.names() == std::set<std::string>{picture('b')});
}

TEST_CASE("names cannot be told of a database that cannot be read") {
  Pictures s;
  std::set<std::string> all;
  CHECK_FALSE(add_picture_names(s.folder / "none.db", all).has_value());
}
