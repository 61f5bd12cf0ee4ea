#include "agent/publish/live_board.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;
using publish::LiveBoard;

namespace {

std::vector<std::string> runs_of(const LiveBoard& board) {
  std::vector<std::string> runs;
  for (const auto& directory : board.directories()) runs.push_back(directory.run);
  return runs;
}

}  // namespace

TEST_CASE("a directory is on the board as it was last told, and who waits for news hears of it") {
  LiveBoard board;
  int heard = 0;
  board.tell({.output_dir = "/b", .database = "b.db", .run = "b-1", .facts = {}});
  board.on_news([&heard] { ++heard; });

  board.tell({.output_dir = "/a", .database = "a.db", .run = "a-1", .facts = {}});
  board.tell({.output_dir = "/b", .database = "b.db", .run = "b-2", .facts = {}});

  CHECK(runs_of(board) == std::vector<std::string>{"a-1", "b-2"});
  CHECK(heard == 2);
}

TEST_CASE("an agent that begins anew leaves nothing on the board of directories that it lacks") {
  LiveBoard board;
  for (const std::string name : {"a", "b", "c"}) {
    board.tell({.output_dir = "/" + name, .database = name, .run = name + "-1", .facts = {}});
  }

  board.keep_only({"/c", "/a", "/new"});

  CHECK(runs_of(board) == std::vector<std::string>{"a-1", "c-1"});
  board.keep_only({});
  CHECK(runs_of(board).empty());
}

TEST_CASE("what stands in the way of all of them is said once, and no warning is") {
  LiveBoard board;
  const auto told = [&board](const std::string& name, publish::AgentFacts facts) {
    board.tell({.output_dir = "/" + name, .database = name, .run = name, .facts = facts});
  };
  told("a", {.warning = "slow", .hindrance = ""});
  CHECK(board.hindrance().empty());

  told("b", {.warning = "slow", .hindrance = "no device"});
  told("c", {.warning = "", .hindrance = "no device"});
  told("d", {.warning = "", .hindrance = "/d: does not answer"});

  CHECK(board.hindrance() == "no device; /d: does not answer");
}
