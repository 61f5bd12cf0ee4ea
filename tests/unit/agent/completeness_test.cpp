#include "agent/watch/completeness.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace evalcar::watch;
using evalcar::checkpoint::Completeness;
using evalcar::checkpoint::Layout;
using std::chrono::seconds;

namespace {
Evidence fsdp2(Completeness completeness) {
  Evidence e;
  e.layout = Layout::kLmmsEngineFsdp2;
  e.completeness = completeness;
  e.settle_time = seconds(30);
  return e;
}
}  // namespace

TEST_CASE("whole FSDP2 shards are evaluated at once, without any marker") {
  CHECK(decide(fsdp2(Completeness::kComplete)).verdict == Verdict::kComplete);
}

TEST_CASE("an empty EMA folder is pending until the writer is done, has moved on, or is quiet") {
  Evidence e = fsdp2(Completeness::kPending);
  CHECK(decide(e).verdict == Verdict::kWaiting);

  e.writer_done = true;
  CHECK(decide(e).verdict == Verdict::kNotStarted);
  e.writer_done = false;
  e.newer_complete = true;
  CHECK(decide(e).verdict == Verdict::kNotStarted);
  e.newer_complete = false;
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kNotStarted);
}

TEST_CASE(
    "whole EMA that the save beside it has not written has not started, however long it rests") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.left = "this save has written no EMA";
  e.doubt = "it is older";
  CHECK(decide(e).verdict == Verdict::kNotStarted);
  CHECK(decide(e).reason == e.left);
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kNotStarted);
}

TEST_CASE("torn shards wait with their reason, and count as torn when nothing moves any more") {
  Evidence e = fsdp2(Completeness::kIncomplete);
  e.reason = "rank 1 is missing";
  CHECK(decide(e).verdict == Verdict::kWaiting);
  CHECK(decide(e).reason == "rank 1 is missing");

  e.unchanged_for = seconds(31);
  CHECK(decide(e).verdict == Verdict::kTorn);
  CHECK(decide(e).reason == "rank 1 is missing");

  e.newer_complete = true;
  CHECK(decide(e).verdict == Verdict::kOvertaken);
  e.unchanged_for = seconds(29);
  CHECK(decide(e).verdict == Verdict::kWaiting);
}

TEST_CASE("whole weights of the Hugging Face Trainer wait for trainer_state.json, or for quiet") {
  for (const Layout layout : {Layout::kHuggingFace, Layout::kDcpSafetensors, Layout::kLoraAdapter,
                              Layout::kDeepspeedZero}) {
    Evidence e = fsdp2(Completeness::kComplete);
    e.layout = layout;
    CHECK(decide(e).verdict == Verdict::kWaiting);

    e.trainer_state = true;
    CHECK(decide(e).verdict == Verdict::kComplete);
    e.trainer_state_is_copied = true;
    CHECK(decide(e).verdict == Verdict::kWaiting);
    CHECK(decide(e).reason.find("a copy that has kept its time") != std::string::npos);
    e.trainer_state = false;
    e.unchanged_for = seconds(30);
    CHECK(decide(e).verdict == Verdict::kComplete);
  }
}

TEST_CASE("a DCP has its mark, its metadata; shards of its safetensors writer have none") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.layout = Layout::kDcp;
  CHECK(decide(e).verdict == Verdict::kComplete);

  e.layout = Layout::kDcpSafetensors;
  CHECK(decide(e).verdict == Verdict::kWaiting);
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kComplete);
}

TEST_CASE("a checkpoint rewritten in place waits until every shard is new") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.rewritten = true;
  CHECK(decide(e).verdict == Verdict::kComplete);
  e.rewrite_done = false;  // config.json, which follows the weights, is still the old one
  CHECK(decide(e).verdict == Verdict::kWaiting);
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kComplete);
}

TEST_CASE("a checkpoint whose small files alone were rewritten waits until nothing moves") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.rewritten = true;
  e.replaced = Replaced::kNone;
  e.rewrite_done = false;
  CHECK(decide(e).verdict == Verdict::kWaiting);
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kComplete);
}

TEST_CASE("shards of two saves are no checkpoint, however long nothing moves, with a marker, too") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.rewritten = true;
  e.replaced = Replaced::kSome;
  e.rewrite_done = false;
  e.marker_there = e.marker_wanted = GENERATE(false, true);
  e.newer_complete = GENERATE(false, true);
  CHECK(decide(e).verdict == Verdict::kWaiting);
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kTorn);
}

TEST_CASE(
    "shards of two saves may be one whose attributes were old: they wait until nothing moves") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.rewritten = true;
  e.replaced = Replaced::kSome;
  e.rewrite_done = false;
  e.before_may_be_stale = true;
  CHECK(decide(e).verdict == Verdict::kWaiting);
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kComplete);
}

TEST_CASE("a doubt that files are of one save waits, and is no proof") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.doubt = "a is newer than b";
  CHECK(decide(e).verdict == Verdict::kWaiting);
  CHECK(decide(e).reason.starts_with("a is newer than b: "));
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kComplete);
}

TEST_CASE("a configured end marker decides alone; without it the folder is torn at last") {
  Evidence e = fsdp2(Completeness::kComplete);
  e.marker_wanted = true;
  e.unchanged_for = seconds(29);
  CHECK(decide(e).verdict == Verdict::kWaiting);
  e.unchanged_for = seconds(30);
  CHECK(decide(e).verdict == Verdict::kTorn);

  e.marker_there = true;
  CHECK(decide(e).verdict == Verdict::kComplete);
}
