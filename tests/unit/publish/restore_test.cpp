// Everything in `_evalcar/` can be deleted by anybody at any time: the database writes it again.
#include "tests/unit/publish/desk.h"
#include "tests/unit/support/sqlite_work.h"

using namespace evalcar;
using namespace evalcar::publish;
using test::Desk;
using test::kDir;
using test::kLog;
using test::must;

namespace {

/// Three published evaluations, and everything that lies in the folder then.
struct Published3 : Desk {
  std::map<std::string, std::string> before;

  Published3() {
    for (const std::int64_t step : {5, 10, 15}) {
      must(publisher->publish(scored(step, 0.01 * static_cast<double>(step)), 0));
    }
    before = everything();
  }
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> found;
    for (const std::string& name : files.tree(kDir)) {
      const bool temporary = name.find(".tmp.") != std::string::npos;  // of a write that was killed
      if (!name.ends_with('/') && !temporary)
        found[name] = files.content(std::string(kDir) + "/" + name).value();
    }
    return found;
  }
  std::vector<std::int64_t> seqs() const {
    std::vector<std::int64_t> found;
    for (const auto& line : lines()) found.push_back(line["seq"]);
    return found;
  }
};

}  // namespace

TEST_CASE("a deleted folder is written again, byte for byte") {
  Published3 d;
  REQUIRE(d.before.size() >= 3 * 3 + 3);
  must(remove_tree(d.files, kDir));

  SECTION("by the same process") {}
  SECTION("by the next one") { d.reopen(); }
  must(d.publisher->publish_pending(d.s.run.id, 0));

  CHECK(d.everything() == d.before);
}

TEST_CASE("the next result comes after the lines that were deleted, which are back") {
  Published3 d;
  must(remove_tree(d.files, kDir));

  must(d.publisher->publish(d.scored(20, 0.5), 0));

  CHECK(d.seqs() == std::vector<std::int64_t>{1, 2, 3, 4});
}

TEST_CASE("a line deleted from the middle is put back in its place, in a new file") {
  Published3 d;
  const std::string whole = d.before.at("metrics.jsonl");
  const std::size_t first = whole.find('\n') + 1;
  const std::size_t second = whole.find('\n', first) + 1;
  d.files.put_file(kLog, whole.substr(0, first) + "not ours\n" + whole.substr(second));
  const auto inode = must(d.files.info(kLog)).inode;

  must(d.publisher->publish_pending(d.s.run.id, 0));

  const std::string expected =
      whole.substr(0, first) + "not ours\n" + whole.substr(first, second - first);
  // What is no line of ours keeps its place behind the line before it.
  CHECK(d.files.content(kLog).value().find(whole.substr(first, second - first)) !=
        std::string::npos);
  CHECK(d.files.content(kLog).value().size() == expected.size() + whole.size() - second);
  CHECK(must(d.files.info(kLog)).inode != inode);
  CHECK(d.files.content(kLog).value().ends_with(whole.substr(second)));
}

TEST_CASE(
    "deleted results of one step come back under the same name, and the others are not touched") {
  Published3 d;
  must(remove_tree(d.files, std::string(kDir) + "/results/10"));
  d.files.reset_calls();

  must(d.publisher->publish_pending(d.s.run.id, 0));

  CHECK(d.everything() == d.before);
  for (const test::Call& call : d.files.calls()) {
    if (call.operation == "rename") CHECK(call.path.find("/results/5/") == std::string::npos);
  }
}

TEST_CASE("deleted event files come back with every scalar") {
  Published3 d;
  must(remove_tree(d.files, std::string(kDir) + "/tensorboard"));

  must(d.publisher->publish_pending(d.s.run.id, 0));

  CHECK(d.everything() == d.before);
}

TEST_CASE("what was deleted comes back in slices, each of which goes on where the last was cut") {
  Published3 d;
  SECTION("event files") { must(remove_tree(d.files, std::string(kDir) + "/tensorboard")); }
  SECTION("results") { must(remove_tree(d.files, std::string(kDir) + "/results")); }
  d.options.enough = [] { return true; };
  d.reopen();

  int cut = 0;
  for (; cut < 10; ++cut) {
    const auto slice = d.publisher->publish_pending(d.s.run.id, 0);
    if (slice.has_value()) break;
    REQUIRE(slice.error().code == ErrorCode::kCancelled);
  }

  CHECK(cut == 2);  // of three evaluations
  CHECK(d.everything() == d.before);
}

TEST_CASE("a slice reads a page of what was published, however much that is") {
  constexpr int kPublished = 80;
  test::SqliteWork work;
  Desk d;
  for (std::int64_t step = 1; step <= kPublished; ++step) {
    must(d.publisher->publish(d.scored(step, 0.5), 0));
  }
  SECTION("deleted results") { must(remove_tree(d.files, std::string(kDir) + "/results")); }
  SECTION("deleted lines") { must(d.files.remove_file(kLog)); }
  d.options.enough = [] { return true; };
  d.reopen();
  work.take_rows();

  int slices = 0;
  for (; slices < 3 * kPublished; ++slices) {
    if (d.publisher->publish_pending(d.s.run.id, 0).has_value()) break;
    CHECK(work.take_rows() < kPublished);
  }

  CHECK(slices < 3 * kPublished);
  CHECK(d.lines().size() == kPublished);
}

TEST_CASE("a kill at any call of a restoration is healed by the next start") {
  std::size_t calls = 0;
  {
    Published3 d;
    must(remove_tree(d.files, kDir));
    d.files.reset_calls();
    must(d.publisher->publish_pending(d.s.run.id, 0));
    calls = d.files.calls().size();
  }
  for (std::size_t call = 1; call <= calls; call += 3) {
    INFO("killed in call " << call);
    Published3 d;
    must(remove_tree(d.files, kDir));
    d.files.die_at_call(call);
    (void)d.publisher->publish_pending(d.s.run.id, 0);
    d.files.die_at_call(0);
    d.reopen();

    must(d.publisher->publish_pending(d.s.run.id, 0));

    CHECK(d.everything() == d.before);
  }
}

TEST_CASE("nothing is written where nothing was deleted") {
  Published3 d;
  d.files.reset_calls();

  must(d.publisher->publish_pending(d.s.run.id, 0));

  for (const char* const change : {"rename", "append", "create", "truncate"}) {
    INFO(change);
    CHECK(d.files.count(change) == 0);
  }
}
