// What was published makes its rows again in a database that does not know it.
#include "agent/publish/recall.h"

#include "agent/publish/logged_lines.h"
#include "tests/unit/publish/desk.h"

using namespace evalcar;
using namespace evalcar::publish;
using test::Desk;
using test::kDir;
using test::kLog;
using test::must;

namespace {

/// Three published evaluations, one measured twice, and a second database that has none of them.
struct Lost : Desk {
  std::vector<state::MetricRow> before;

  explicit Lost(const std::string& mark = "") {
    if (!mark.empty()) must(s.store->set_mark(s.run.id, mark));
    for (const std::int64_t step : {5, 10}) {
      must(publisher->publish(scored(step, 0.01 * static_cast<double>(step)), 0));
    }
    before = must(s.store->read().metrics());
    publisher.reset();
    s.store.reset();
    for (const char* const suffix : {"", "-wal", "-shm"}) {
      std::filesystem::remove(s.db() + suffix);
    }
    reopen();
  }
  /// Of the first evaluation.
  std::string samples_file() const {
    std::string path = std::string(kDir) + "/" + lines()[0]["results"].get<std::string>();
    path.resize(path.size() - std::string_view("_results.json").size());
    return path + "_samples_docvqa_val.jsonl";
  }
  Recalled recall() { return must(recall_published(files, kDir, *s.store, s.run)); }
};

}  // namespace

TEST_CASE("a lost database has all numbers, samples and lines again, and publishes nothing twice") {
  Lost d;
  const auto text = d.files.content(kLog);

  const Recalled recalled = d.recall();

  CHECK(recalled.taken == 2);
  CHECK(recalled.left.empty());
  const auto after = must(d.s.store->read().metrics());
  REQUIRE(after.size() == d.before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i].step == d.before[i].step);
    CHECK(after[i].value == d.before[i].value);
    CHECK(after[i].stderr_value == d.before[i].stderr_value);
    CHECK(after[i].weights_sha256 == d.before[i].weights_sha256);
    CHECK(after[i].finished_at == d.before[i].finished_at);
  }
  const auto rows = must(d.s.store->read().evaluations());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].state == state::EvaluationState::kPublished);
  int lines = 0;
  must(d.s.store->read().for_each_sample(rows[0].id, "docvqa_val", [&](std::string_view) -> Status {
    ++lines;
    return {};
  }));
  CHECK(lines == 2);
  CHECK(must(d.publisher->publish_pending(d.s.run.id, 0)) == 0);
  CHECK(d.files.content(kLog) == text);
  CHECK(d.recall().taken == 0);
}

TEST_CASE("a large folder is recalled in slices, a line at least in each") {
  Lost d;
  Recall recall(d.files, kDir, *d.s.store, d.s.run);

  int cut = 0;
  while (cut < 1000 && !must(recall.step([] { return true; }))) ++cut;

  CHECK(cut > 10);  // two lines were read, judged and taken, with two samples each
  CHECK(recall.recalled().taken == 2);
  CHECK(must(d.s.store->read().metrics()).size() == d.before.size());
}

TEST_CASE("long files are recalled in slices, too: behind each sample, and each mebibyte") {
  Lost d;
  const auto slices = [&d] {
    int asked = 0;
    Recall recall(d.files, kDir, *d.s.store, d.s.run);
    CHECK(must(recall.step([&asked] { return ++asked < 0; })));
    return asked;
  };
  const int alone = slices();
  d.s.store.reset();
  for (const char* const suffix : {"", "-wal", "-shm"}) std::filesystem::remove(d.s.db() + suffix);
  d.reopen();
  std::string samples = must(read_file(d.files, d.samples_file(), std::uint64_t{1} << 20U));
  for (int doc = 1000; doc < 4000; ++doc) {
    samples += "{\"doc_id\":" + std::to_string(doc) + "}\n";
  }
  d.files.put_file(d.samples_file(), samples);
  const std::string log = d.files.content(kLog).value();
  d.files.put_file(kLog, log + std::string(4 * LineReader::kPieceBytes, ' '));

  const int with_more = slices();

  CHECK(with_more >= alone + 3000 + 4);
  CHECK(must(d.s.store->read().metrics()).size() == d.before.size());
}

TEST_CASE("where the log cannot be read that is said, and the run begins all the same") {
  Lost d;
  d.files.fail_operation("open_readable", EIO);

  const Recalled recalled = d.recall();

  CHECK(recalled.taken == 0);
  REQUIRE(recalled.left.size() == 1);
  CHECK(recalled.left[0].find("metrics.jsonl") != std::string::npos);
  CHECK(d.recall().taken == 2);
}

TEST_CASE("a lost database knows that weights came back after others") {
  Desk d;
  must(d.publisher->publish(d.rewritten(5, "a", "A", 0.5), 0));
  must(d.publisher->publish(d.rewritten(5, "b", "B", 0.75), 0));
  must(d.publisher->publish(d.rewritten(5, "a again", "A", 0.5), 0));
  d.publisher.reset();
  d.s.store.reset();
  for (const char* const suffix : {"", "-wal", "-shm"}) {
    std::filesystem::remove(d.s.db() + suffix);
  }
  d.reopen();

  const Recalled recalled = must(recall_published(d.files, kDir, *d.s.store, d.s.run));

  CHECK(recalled.taken == 3);
  CHECK(recalled.left.empty());
  const auto numbers = must(d.s.store->read().metrics());
  REQUIRE(numbers.size() == 1);
  CHECK(numbers[0].weights_sha256 == "A");
  CHECK(numbers[0].value == 0.5);
  CHECK(must(d.publisher->publish_pending(d.s.run.id, 0)) == 0);
}

TEST_CASE(
    "the rows that come back are those of the checkpoint that was measured, not of a new one") {
  Lost d;
  d.recall();
  const auto rows = must(d.s.store->read().evaluations());
  CHECK_FALSE(must(d.s.store->read().checkpoint(rows[0].checkpoint_id)).gone_at.empty());
}

TEST_CASE("a line whose results file says something else, or is not there, is not taken") {
  Lost d;
  std::string text = d.files.content(kLog).value();
  const std::string value = "\"eval/docvqa_val/anls\":0.05";
  REQUIRE(text.find(value) != std::string::npos);

  SECTION("another number") {
    text.replace(text.find(value), value.size(), "\"eval/docvqa_val/anls\":0.95");
  }
  SECTION("another step") {
    text.replace(text.find("\"global_step\":5,"), 16, "\"global_step\":7,");
  }
  SECTION("a path that leads out") {
    const std::size_t at = text.find("\"results/5/");
    text.replace(at, 11, "\"../../x/5/");
  }
  d.files.put_file(kLog, text);

  const Recalled recalled = d.recall();

  CHECK(recalled.taken == 1);
  REQUIRE(recalled.left.size() == 1);
  CHECK(recalled.left[0].find("line 1") == 0);
}

TEST_CASE("a results file or a line that is nested without end is not taken, and ends nothing") {
  Lost d;
  const std::string opened(300'000, '[');
  const std::string closed(300'000, ']');
  const std::string path = std::string(kDir) + "/" + d.lines()[0]["results"].get<std::string>();
  std::string text = d.files.content(path).value();
  const std::size_t at = text.find("\"record\"");
  REQUIRE(at != std::string::npos);
  const std::size_t brace = text.find('{', at);
  text.insert(brace + 1, "\"deep\":" + opened + closed + ",");
  d.files.put_file(path, text);
  d.files.put_file(
      kLog, d.files.content(kLog).value() + "{\"seq\":3,\"deep\":" + opened + closed + "}\n");

  const Recalled recalled = d.recall();

  CHECK(recalled.taken == 1);
  REQUIRE(recalled.left.size() == 1);
  CHECK(recalled.left[0].find("line 1") == 0);
}

TEST_CASE("a torn tail and lines of other runs are left alone") {
  Lost d;
  const std::string text = d.files.content(kLog).value() +
                           "{\"seq\":9,\"run\":\"other-1\",\"evaluation\":\"x\"}\n{\"seq\":";
  d.files.put_file(kLog, text);

  CHECK(d.recall().taken == 2);
  CHECK(d.files.content(kLog) == text);
}

TEST_CASE("the generation of a run is that of its newest line") {
  Lost d;
  CHECK(published_generation(d.files, kDir, "run-01234567") == 1);
  CHECK(published_generation(d.files, kDir, "run-0123456") == 0);
  CHECK(published_generation(d.files, "/nowhere", "run-01234567") == 0);

  const std::string text = d.files.content(kLog).value();
  const std::string newer = "{\"seq\":9,\"run\":\"run-01234567-7\"}\n";
  const std::string mebibyte(std::size_t{1} << 20U, 'x');
  d.files.put_file(kLog, text + mebibyte + "\n" + text + newer + "no JSON\n" + mebibyte);
  CHECK(published_generation(d.files, kDir, "run-01234567") == 7);
}

TEST_CASE("a renamed directory has its lines under another name, told by its mark alone") {
  for (const bool marked : {true, false}) {
    Lost d("of this life");
    d.s.run.mark = marked ? "of this life" : "of another life";
    d.s.run.name = "renamed-89abcdef-1";
    const Recalled recalled = d.recall();
    CHECK(recalled.taken == (marked ? 2 : 0));
    CHECK(recalled.left.empty());
  }
}
