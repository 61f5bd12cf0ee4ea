#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;

TEST_CASE("a folder that is written, then whole, then deleted stays one generation") {
  Scenario s;
  const auto writing = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "")));
  CHECK(writing.is_new);
  CHECK(must(s.store->read().incomplete_reason(writing.checkpoint.id, "regular")) ==
        "model.safetensors is short");
  const auto whole = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "f")));
  CHECK_FALSE(whole.is_new);
  CHECK(whole.checkpoint.id == writing.checkpoint.id);
  CHECK(must(s.store->read().incomplete_reason(writing.checkpoint.id, "regular")).empty());

  const auto deleting = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "")));
  CHECK_FALSE(deleting.is_new);
  CHECK(must(s.store->read().incomplete_reason(writing.checkpoint.id, "regular")).empty());
  must(s.store->mark_checkpoint_gone(whole.checkpoint.id));
  CHECK_FALSE(must(s.store->read().checkpoint(whole.checkpoint.id)).gone_at.empty());
  must(s.store->mark_checkpoint_gone(whole.checkpoint.id));
  CHECK(s.store->mark_checkpoint_gone(99).error().code == ErrorCode::kNotFound);
}

TEST_CASE("a folder that went while its delete was looked at is no new generation") {
  Scenario s;
  const auto whole = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "f")));
  auto deleting = Scenario::seen(5, "");
  deleting.device = deleting.inode = 0;

  const auto observed = must(s.store->observe_checkpoint(s.run.id, deleting));

  CHECK_FALSE(observed.is_new);
  CHECK_FALSE(observed.replaces.has_value());
  CHECK(observed.checkpoint.inode == whole.checkpoint.inode);
  must(s.store->mark_checkpoint_gone(whole.checkpoint.id));
  CHECK_FALSE(must(s.store->observe_checkpoint(s.run.id, deleting)).checkpoint.gone_at.empty());
}

TEST_CASE("what was seen of unfinished folders is there after a restart, until it is ended") {
  Scenario s;
  const UnfinishedFolder five = {5,
                                 {{"0.pt", 11, 100, 7}, {"1.pt", 12, 50, 9}},
                                 {{"0.pt", 11, 100, 7}},
                                 8,
                                 {{"1.pt", 0xffffffffffffffffU}},
                                 {{"0.pt", 3}}};
  const UnfinishedFolder ten = {10, {{"0.pt", 13, 1, 2}}, {}, std::nullopt};
  must(s.store->set_unfinished(s.run.id, std::vector{five, ten}, {}));
  s.reopen();
  CHECK(must(s.store->read().unfinished(s.run.id)) == std::vector{five, ten});
  CHECK(must(s.store->read().unfinished(s.run.id + 1)).empty());

  UnfinishedFolder later = ten;
  later.older = later.files;
  must(s.store->set_unfinished(s.run.id, std::vector{later}, std::vector<std::int64_t>{5}));

  CHECK(must(s.store->read().unfinished(s.run.id)) == std::vector{later});
}

TEST_CASE("rewritten files, a new folder, and a name that came back are new generations") {
  Scenario s;
  const auto first = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "a")));

  SECTION("files rewritten in place") {
    const auto second = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "b")));
    CHECK(second.is_new);
    CHECK(second.checkpoint.generation == 2);
    CHECK(second.replaces == first.checkpoint.id);
  }
  SECTION("another folder under the name, still being written") {
    CHECK(must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "", 77))).is_new);
  }
  SECTION("gone, then there again with a reused inode, still being written") {
    must(s.store->mark_checkpoint_gone(first.checkpoint.id));
    CHECK(must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, ""))).is_new);
  }
  SECTION("gone (unmounted), then there again with the same files") {
    must(s.store->mark_checkpoint_gone(first.checkpoint.id));
    const auto back = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "a")));
    CHECK_FALSE(back.is_new);
    CHECK(back.checkpoint.gone_at.empty());
  }
  SECTION("another device number, the same files: only mounted anew") {
    auto seen = Scenario::seen(5, "a");
    seen.device = 42;
    const auto mounted = must(s.store->observe_checkpoint(s.run.id, seen));
    CHECK_FALSE(mounted.is_new);
    CHECK(mounted.checkpoint.device == 42);
  }
}

TEST_CASE("EMA weights that become whole later belong to the same generation") {
  Scenario s;
  const auto first = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "a")));
  auto seen = Scenario::seen(5, "a");
  seen.kinds.push_back({"ema", true, "", "e", 1, 2});
  const auto later = must(s.store->observe_checkpoint(s.run.id, seen));
  CHECK(later.checkpoint.id == first.checkpoint.id);
  must(s.store->set_kept_path(later.checkpoint.id, "ema", "/kept"));
  CHECK(must(s.store->read().kept_path(later.checkpoint.id, "ema")) == "/kept");
  CHECK(must(s.store->read().kept_path(later.checkpoint.id, "regular")).empty());
  CHECK(s.store->set_kept_path(later.checkpoint.id, "average", "/x").error().code ==
        ErrorCode::kNotFound);
}

TEST_CASE("an output directory that was made anew is a new run") {
  Scenario s;
  CHECK(s.run.name == "run-01234567-1");
  const Run same = must(s.store->ensure_run("run-01234567", "/out/run", 2, 10));
  CHECK(same.id == s.run.id);
  const Run other = must(s.store->ensure_run("run-01234567", "/out/run", 1, 11));
  CHECK(other.name == "run-01234567-2");
  CHECK(must(s.store->ensure_run("run-01234567", "/out/run", 1, 11)).id == other.id);
}

TEST_CASE("a fingerprint sees every change of a file, and no order") {
  const std::vector<FileIdentity> files = {{"a", 1, 2, 3}, {"b", 4, 5, 6}};
  const std::string before = content_fingerprint(files);
  CHECK(content_fingerprint({files[1], files[0]}) == before);
  for (int change = 0; change < 5; ++change) {
    auto other = files;
    if (change == 0) other[0].path = "c";
    if (change == 1) other[0].inode++;
    if (change == 2) other[1].size_bytes++;
    if (change == 3) other[1].mtime_ns++;
    if (change == 4) other.pop_back();
    CHECK(content_fingerprint(other) != before);
  }
}

TEST_CASE("what a delete has left of the files is no new generation, and is not recorded") {
  Scenario s;
  auto seen = Scenario::seen(5, "a");
  seen.kinds[0].files = {{"model.safetensors", 1, 2, 3}, {"tokenizer \"\xff.json", 4, 5, 6}};
  const auto whole = must(s.store->observe_checkpoint(s.run.id, seen));
  auto left = Scenario::seen(5, "b");
  left.kinds[0].files = {seen.kinds[0].files[0]};

  CHECK_FALSE(must(s.store->observe_checkpoint(s.run.id, left)).is_new);

  const auto known = must(s.store->read().known_kinds(s.run.id));
  REQUIRE(known.size() == 1);
  CHECK(known[0].fingerprint == "a");
  CHECK(known[0].files.size() == 2);
  CHECK(known[0].files[0] == seen.kinds[0].files[0]);
  left.kinds[0].files[0].mtime_ns++;  // not left over: written again
  CHECK(must(s.store->observe_checkpoint(s.run.id, left)).is_new);
  CHECK(must(s.store->read().known_kinds(s.run.id)).at(0).fingerprint == "b");
  CHECK(whole.checkpoint.generation == 1);
}

TEST_CASE("a mark tells the run, whatever its inode and generation") {
  Scenario s;
  const std::string a(32, 'a');
  const std::string b(32, 'b');
  must(s.store->set_mark(s.run.id, a));
  CHECK(must(s.store->ensure_run("run-01234567", "/out/run", 1, 77, a)).id == s.run.id);
  // Removed and made anew with the same inode: no mark yet, then another one.
  const Run second = must(s.store->ensure_run("run-01234567", "/out/run", 1, 10));
  CHECK(second.generation == 2);
  CHECK(must(s.store->ensure_run("run-01234567", "/out/run", 1, 10, b)).id == second.id);
  // The first one's file system came back.
  CHECK(must(s.store->ensure_run("run-01234567", "/out/run", 1, 10, a)).id == s.run.id);
  CHECK(must(s.store->ensure_run("run-01234567", "/out/run", 1, 10, b)).mark == b);
  CHECK(must(s.store->read().runs()).size() == 2);
}

TEST_CASE("weights that lay elsewhere leave the folder of their name the generation that it was") {
  Scenario s;
  const auto folder = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "a")));
  auto weights = Scenario::seen(5, "b", 1005);  // the inode of another file system, by chance
  weights.path = "/shm/weights-of-step-5";
  const auto elsewhere = must(s.store->observe_checkpoint(s.run.id, weights));
  CHECK(elsewhere.checkpoint.generation == 2);

  SECTION("seen again as it is") {
    CHECK(must(s.store->generation_of(s.run.id, Scenario::seen(5, "a"))) == 1);
    const auto again = must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "a")));
    CHECK_FALSE(again.is_new);
    CHECK(again.checkpoint.id == folder.checkpoint.id);
    CHECK(must(s.store->observe_checkpoint(s.run.id, weights)).checkpoint.generation == 2);
  }
  SECTION("while it is deleted") {
    CHECK(must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, ""))).checkpoint.id ==
          folder.checkpoint.id);
  }
  SECTION("written again since") {
    CHECK(
        must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "c"))).checkpoint.generation ==
        3);
  }
  SECTION("another folder") {
    CHECK(must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "", 77)))
              .checkpoint.generation == 3);
  }
  SECTION("a kind that was not whole before") {
    auto seen = Scenario::seen(5, "");
    seen.kinds = {{"ema", true, "", "e", 1, 6}};
    CHECK(must(s.store->observe_checkpoint(s.run.id, seen)).checkpoint.generation == 3);
  }
  SECTION("a kind that was not whole before, and is older than those weights") {
    auto seen = Scenario::seen(5, "");
    seen.kinds = {{"ema", true, "", "e", 1, 2}};
    CHECK(must(s.store->observe_checkpoint(s.run.id, seen)).checkpoint.generation == 1);
  }
}

TEST_CASE("a folder that is not known and older than weights elsewhere comes below them") {
  Scenario s;
  auto weights = Scenario::seen(5, "b", 9);
  weights.path = "/shm/weights-of-step-5";
  const std::int64_t generation = GENERATE(1, 2);
  must(s.store->observe_checkpoint(s.run.id, weights, generation));
  auto folder = Scenario::seen(5, "");  // not known to be whole at first
  folder.kinds[0].mtime_ns = 4;

  const auto observed = must(s.store->observe_checkpoint(s.run.id, folder));

  CHECK(observed.is_older);
  CHECK_FALSE(observed.replaces.has_value());
  CHECK(observed.checkpoint.generation == generation - 1);
  auto whole = Scenario::seen(5, "a");
  whole.kinds[0].mtime_ns = 4;
  const auto again = must(s.store->observe_checkpoint(s.run.id, whole));
  CHECK(again.is_older);
  CHECK(again.checkpoint.id == observed.checkpoint.id);
  CHECK(must(s.store->observe_checkpoint(s.run.id, weights)).checkpoint.generation == generation);
  whole.kinds[0] = {"regular", true, "", "c", 4, 6};  // written since
  CHECK(must(s.store->observe_checkpoint(s.run.id, whole)).checkpoint.generation == generation + 1);
}

TEST_CASE("a folder that is not known and not older than weights elsewhere comes after them") {
  Scenario s;
  auto weights = Scenario::seen(5, "b", 9);
  weights.path = "/shm/weights-of-step-5";
  must(s.store->observe_checkpoint(s.run.id, weights));
  auto folder = Scenario::seen(5, GENERATE("", "a"));
  folder.kinds[0].mtime_ns = GENERATE(0, 5);  // 0: nothing of it was seen yet

  CHECK(must(s.store->observe_checkpoint(s.run.id, folder)).checkpoint.generation == 2);
}

TEST_CASE("what a watcher is told was whole is the folder's, not that of weights elsewhere") {
  Scenario s;
  must(s.store->observe_checkpoint(s.run.id, Scenario::seen(5, "a")));
  auto weights = Scenario::seen(5, "b", 9);
  weights.path = "/shm/weights-of-step-5";
  must(s.store->observe_checkpoint(s.run.id, weights));

  const auto known = must(s.store->read().known_kinds(s.run.id));

  REQUIRE(known.size() == 1);
  CHECK(known.front().fingerprint == "a");
}
