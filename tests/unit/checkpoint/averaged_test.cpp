#include "store/checkpoint/averaged.h"

#include <catch2/catch_test_macros.hpp>

#include "store/checkpoint/layout.h"
#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

/// A safetensors file of the tensors "count" (int32 [2]) and "w" (float32 [2,2]).
std::string weights(std::vector<std::int32_t> count, std::vector<float> values) {
  std::string header = R"({"count":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},)"
                       R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}})";
  while (header.size() % 8 != 0) header += ' ';
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + bytes_of(count) +
         bytes_of(values);
}

struct Members {
  RealFileSystem files;
  ScratchFolder scratch;
  std::string dir = scratch.at("5-1-average");

  Members() {
    add("a", weights({1, 2}, {1, 2, 3, 4}));
    add("b", weights({7, 8}, {2, 4, 6, 9}));
    scratch.write("5-1-average/config.json", "{}");
    list(R"({"members":["a","b"]})");
  }
  void add(const std::string& name, const std::string& file) const {
    scratch.write("5-1-average/members/" + name + "/model.safetensors", file);
    scratch.write("5-1-average/members/" + name + "/config.json", "{}");
  }
  void list(std::string_view text) const { scratch.write("5-1-average/members.json", text); }
  Result<Plan> plan() const { return make_plan(files, dir, WeightsKind::kAverage); }
};

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

bool says(const Error& error, const std::string& text) {
  return error.message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("an average is the mean of floats, and the newest one's of anything else") {
  const Members members;

  const auto plan = members.plan();

  REQUIRE(plan.has_value());
  CHECK(plan->kind == WeightsKind::kAverage);
  CHECK(plan->layout == Layout::kAveraged);
  const auto reader = PlanReader::open(members.files, *plan);
  REQUIRE(reader.has_value());
  CHECK(read_tensor(*reader, *plan, 0) == bytes_of(std::vector<std::int32_t>{7, 8}));
  CHECK(floats(read_tensor(*reader, *plan, 1)) == std::vector<float>{1.5F, 3, 4.5F, 6.5F});
  std::string column(8, '\0');
  REQUIRE(reader
              ->read_box(1, Box{{0, 1}, {2, 1}},
                         std::as_writable_bytes(std::span(column.data(), column.size())))
              .has_value());
  CHECK(floats(column) == std::vector<float>{3, 6.5F});
}

TEST_CASE("a member that is named twice is refused") {
  const Members members;
  members.list(R"({"members":["a","a"]})");
  const auto plan = members.plan();
  REQUIRE_FALSE(plan.has_value());
  CHECK(plan.error().message.find("a member twice") != std::string::npos);
}

TEST_CASE("a folder of members is complete when each of them is, and lists every file") {
  const Members members;

  const auto report = inspect_layout(members.files, members.dir);

  REQUIRE(report.has_value());
  REQUIRE(report->kinds.size() == 1);
  CHECK(report->kinds[0].completeness == Completeness::kComplete);
  CHECK(report->kinds[0].files ==
        std::vector<std::string>{"members.json", "members/a/model.safetensors",
                                 "members/b/model.safetensors", "config.json"});
  std::filesystem::remove(members.scratch.at("5-1-average/members/b/model.safetensors"));
  CHECK(inspect_layout(members.files, members.dir)->kinds[0].completeness ==
        Completeness::kIncomplete);
  CHECK_FALSE(make_plan(members.files, members.dir, WeightsKind::kRegular).has_value());
}

TEST_CASE("a mean keeps the sign of zeros, and float8 has none") {
  const Members members;
  members.add("a", weights({1, 2}, {-0.0F, -0.0F, 1, 1}));
  members.add("b", weights({1, 2}, {-0.0F, 0.0F, 1, 1}));
  const auto plan = members.plan();
  REQUIRE(plan.has_value());
  const auto reader = PlanReader::open(members.files, *plan);
  REQUIRE(reader.has_value());
  CHECK(read_tensor(*reader, *plan, 1) == bytes_of(std::vector<float>{-0.0F, 0.0F, 1, 1}));

  for (const char* const name : {"a", "b"}) {
    std::string file = weights({1, 2}, {1, 2, 3, 4});
    file.replace(file.find(R"("I32","shape":[2])"), 17, R"("F8_E4M3","shape":[8])");
    file.replace(0, 8, std::string(1, static_cast<char>(file[0] + 4)) + std::string(7, '\0'));
    members.add(name, file);
  }
  REQUIRE_FALSE(members.plan().has_value());
  CHECK(says(members.plan().error(), "\"count\" is float8_e4m3fn"));
}

TEST_CASE("members of other shapes or names are not averaged") {
  const Members members;
  std::string other = weights({1, 2}, {1, 2, 3, 4});
  other.replace(other.find("[2,2]"), 5, "[4,1]");
  members.add("b", other);
  REQUIRE_FALSE(members.plan().has_value());
  CHECK(says(members.plan().error(), "checkpoint 1 of the average holds \"w\" as float32 [2, 2]"));

  other.replace(other.find("\"w\""), 3, "\"v\"");
  members.add("b", other);
  REQUIRE_FALSE(members.plan().has_value());
  CHECK(says(members.plan().error(), "has no tensor \"v\""));
}

TEST_CASE("members are folders of the average, not what a link out of it leads to") {
  const Members members;
  const std::string inside = members.dir + "/members/";
  const std::string outside = members.scratch.at("outside");
  std::filesystem::rename(inside + "b", outside);
  std::filesystem::create_symlink(outside, inside + "b");
  REQUIRE_FALSE(members.plan().has_value());
  CHECK(members.plan().error().code == ErrorCode::kCorruption);
  CHECK(says(members.plan().error(), "members/b: a link out of the checkpoint's folder"));

  std::filesystem::remove(inside + "b");
  std::filesystem::rename(outside, inside + "b");
  CHECK(members.plan().has_value());
  std::filesystem::rename(inside, outside);
  std::filesystem::create_symlink(outside, members.dir + "/members");
  REQUIRE_FALSE(members.plan().has_value());
  CHECK(says(members.plan().error(), "members: a link out of the checkpoint's folder"));
}

TEST_CASE("a member is no average itself, so that none is without end") {
  const Members members;
  std::filesystem::remove_all(members.dir + "/members/b");
  std::filesystem::create_symlink("..", members.dir + "/members/b");
  REQUIRE_FALSE(members.plan().has_value());
  CHECK(says(members.plan().error(), "members/b: "));
  CHECK_FALSE(says(members.plan().error(), "members/b/members"));

  std::filesystem::remove(members.dir + "/members/b");
  members.scratch.write("5-1-average/members/b/members.json", R"({"members":["c"]})");
  members.scratch.write("5-1-average/members/b/members/c/config.json", "{}");
  REQUIRE_FALSE(members.plan().has_value());
  CHECK(says(members.plan().error(), "members/b: holds no checkpoint"));
}

TEST_CASE("a members' file that lies is refused") {
  const Members members;
  for (const std::string_view text :
       {R"({"members":["../a"]})", R"({"members":["/etc"]})", R"({"members":[""]})",
        R"({"members":[".."]})", R"({"members":["a\u0000"]})", R"({"members":[1]})",
        R"({"members":[["a"]]})", R"({"members":"a"})", R"({"members":[]})", R"(["a"])", R"({})",
        R"({"members":["a"],"members":["b"]})", "", "{"}) {
    CAPTURE(text);
    members.list(text);
    CHECK_FALSE(members.plan().has_value());
  }
  members.list(R"({"members":["a","c"]})");
  CHECK_FALSE(members.plan().has_value());
}

TEST_CASE("boxes of a box follow each other in row-major order within its bounds") {
  const Box whole{{1, 2, 3}, {2, 3, 4}};
  for (const std::uint64_t limit : {1U, 4U, 12U, 16U, 20U, 48U, 1000U}) {
    std::vector<std::int64_t> seen;
    for (const Box& box : row_major_boxes(whole, 4, limit)) {
      for (std::int64_t i = 0; i < box.size[0]; ++i) {
        for (std::int64_t j = 0; j < box.size[1]; ++j) {
          for (std::int64_t k = 0; k < box.size[2]; ++k) {
            seen.push_back(((box.start[0] + i) * 10 + box.start[1] + j) * 10 + box.start[2] + k);
          }
        }
      }
    }
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 1; i < 3; ++i) {
      for (std::int64_t j = 2; j < 5; ++j) {
        for (std::int64_t k = 3; k < 7; ++k) expected.push_back((i * 10 + j) * 10 + k);
      }
    }
    CHECK(seen == expected);
  }
}
