#include "evaluator/service/rank.h"

#include <catch2/catch_test_macros.hpp>
#include <map>

using namespace evalcar;
using namespace evalcar::service;

namespace {

Result<Rank> read(const std::map<std::string, std::string>& environment) {
  return read_rank([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("without launcher's variables a process is the only one, on the first GPU") {
  CHECK(read({}).value() == Rank{0, 0, 1});
  CHECK(read({{"RANK", ""}, {"LOCAL_RANK", "2"}}).value() == Rank{2, 0, 1});
  CHECK(device_of_rank("cuda", {.local = 2}) == "cuda:2");
  CHECK(device_of_rank("cuda:1", {.local = 2}) == "cuda:1");
  CHECK(device_of_rank("auto", {.local = 2}) == "auto");
}

TEST_CASE("a rank that cannot be is refused with its variable and value") {
  for (const char* const text : {"x", "-1", "1.5", "99999999999", " 1"}) {
    const auto rank = read({{"LOCAL_RANK", text}});
    REQUIRE_FALSE(rank.has_value());
    CHECK(rank.error().code == ErrorCode::kInvalidArgument);
    CHECK(rank.error().message.starts_with("LOCAL_RANK=" + std::string(text)));
  }
  CHECK(read({{"WORLD_SIZE", "0"}}).error().message.starts_with("WORLD_SIZE=0"));
  CHECK(read({{"RANK", "1"}}).error().message ==
        "RANK=1 with WORLD_SIZE=1: expected a rank below the world's size");
  const auto several = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  CHECK(several.error().code == ErrorCode::kUnsupported);
}
