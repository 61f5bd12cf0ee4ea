// Scores of a part beside the numbers: kept, shown in a view of their own, never in another.
#include "store/state/sqlite.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;
using enum EvaluationState;

namespace {

protocol::Interim interim_of(double fraction, double value, const std::string& weights = "w1") {
  protocol::Interim interim;
  interim.weights_sha256 = weights;
  interim.fraction = fraction;
  interim.tasks.resize(1);
  interim.tasks[0].task = "docvqa_val";
  interim.tasks[0].fingerprint = "f1";
  interim.tasks[0].n = static_cast<std::int64_t>(fraction * 100);
  interim.tasks[0].documents = 100;
  interim.tasks[0].metrics = {{"anls", "none", value, 0.25, "", "", true}};
  interim.tasks[0].notes = R"({"counted_as_misses":2})";
  return interim;
}

Result<InterimLine> tell(Scenario& s, std::int64_t id, const protocol::Interim& interim,
                         const std::string& key) {
  return s.store->record_interim(
      id, interim, key, 0,
      [](std::int64_t seq, std::optional<std::int64_t>) -> Result<std::string> {
        return "line " + std::to_string(seq);
      });
}

std::vector<std::string> rows(const Scenario& s, const std::string& sql) {
  const auto connection = must(Connection::open(s.db(), Connection::Mode::kReadOnly, 1000));
  Statement statement = must(connection->prepare(sql));
  std::vector<std::string> found;
  while (must(statement.step())) found.push_back(statement.text(0));
  return found;
}

constexpr const char* kShown =
    "SELECT step || ' ' || task || ' ' || value || ' ' || n || '/' || documents || ' ' || state "
    "FROM interim_metrics ORDER BY step";

}  // namespace

TEST_CASE("the view of interim scores shows the latest one, until there is a number") {
  Scenario s;
  const std::int64_t id = s.plan(5).id;
  s.bring(id, kEvaluating);

  must(tell(s, id, interim_of(0.1, 0.25), "a"));
  CHECK(rows(s, kShown) == std::vector<std::string>{"5 docvqa_val 0.25 10/100 evaluating"});
  must(tell(s, id, interim_of(0.3, 0.5), "b"));
  CHECK(rows(s, kShown) == std::vector<std::string>{"5 docvqa_val 0.5 30/100 evaluating"});
  CHECK(rows(s, "SELECT notes->>'counted_as_misses' FROM interim_metrics") ==
        std::vector<std::string>{"2"});
  CHECK(rows(s, "SELECT value FROM metrics").empty());
  CHECK(rows(s, "SELECT line FROM samples").empty());

  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.tasks = {test::anls_result("docvqa_val", 0.75)};
  must(s.store->record_result(id, result));
  CHECK(rows(s, kShown).empty());
  CHECK(rows(s, "SELECT value FROM metrics") == std::vector<std::string>{"0.75"});
}

TEST_CASE("what is told again gets the same line, and other weights or another state none") {
  Scenario s;
  const std::int64_t id = s.plan(5).id;
  s.bring(id, kEvaluating);

  CHECK(must(tell(s, id, interim_of(0.1, 0.25), "a")).seq == 1);
  CHECK(must(tell(s, id, interim_of(0.1, 0.25), "a")).seq == 1);
  const InterimLine next = must(tell(s, id, interim_of(0.3, 0.5), "b"));
  CHECK(next.seq == 2);
  CHECK(next.supersedes == 1);
  CHECK(must(s.store->read().interim_fraction(id)) == 0.3);
  CHECK(must(s.store->read().interim_lines_after(s.run.id, 0, 9)).size() == 2);
  CHECK(must(s.store->read().interim_lines_after(s.run.id, 1, 9)).size() == 1);

  CHECK(tell(s, id, interim_of(0.4, 0.5, "w2"), "c").error().code == ErrorCode::kCorruption);
  const std::int64_t waiting = s.plan(6).id;
  s.bring(waiting, kLeased);
  CHECK_FALSE(tell(s, waiting, interim_of(0.1, 0.5), "d").has_value());
  CHECK_FALSE(must(s.store->read().interim_fraction(waiting)).has_value());
}

TEST_CASE("an evaluation that is put back keeps its answers and its interim score") {
  Scenario s;
  const std::int64_t id = s.plan(5).id;
  s.bring(id, kEvaluating);
  must(s.store->record_answers(id,
                               std::vector<protocol::Sample>{{"", "docvqa_val", 1, "x", 1, "f1"}}));
  must(tell(s, id, interim_of(0.1, 0.25), "a"));

  must(s.store->transition(id, kLeased, "a newer one goes first"));

  CHECK(must(s.store->read().answers(id)).size() == 1);
  CHECK(rows(s, kShown) == std::vector<std::string>{"5 docvqa_val 0.25 10/100 leased"});
  must(s.store->begin_attempt(id, "cpu"));
  CHECK(must(s.store->record_loaded(id, "w1", "float32")).answers_kept == 1);
}
