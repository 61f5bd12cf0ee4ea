#include "agent/page/sample_pictures.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "agent/page/sample_list.h"
#include "store/protocol/picture_name.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using page::SamplePictures;
using test::must;

namespace {

const std::string kFolder = "/state/sample-pictures";
const std::string kJpeg = "\xFF\xD8\xFF\xE0 pixels \xFF\xD9";

std::string picture(char letter) { return std::string(64, letter) + ".jpg"; }

struct Folder {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  SamplePictures pictures{files, kFolder};

  void put(const std::string& name, const std::string& content) {
    files.put_file(protocol::sample_picture_path(kFolder, name), content);
  }
};

}  // namespace

TEST_CASE("a kept picture is handed on byte for byte") {
  Folder f;
  f.put(picture('a'), kJpeg);
  CHECK(f.pictures.has(picture('a')));
  CHECK(must(f.pictures.read(picture('a'))) == kJpeg);
}

TEST_CASE("what is no such name, or is not there, is not looked for anywhere else") {
  Folder f;
  f.put(picture('a'), kJpeg);
  f.files.put_file("/state/secret.jpg", kJpeg);
  f.files.put_file(kFolder + "/secret.jpg", kJpeg);
  f.files.reset_calls();
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../secret.jpg"),
        std::string("secret.jpg"), std::string("/state/secret.jpg"), "aa/" + picture('a'),
        picture('a') + "/", picture('A'), std::string(64, 'a'), std::string(64, 'a') + ".png",
        picture('a') + std::string(1, '\0'), std::string(100'000, 'a') + ".jpg"}) {
    INFO(name.substr(0, 80));
    CHECK_FALSE(f.pictures.has(name));
    CHECK(f.pictures.read(name).error().code == ErrorCode::kNotFound);
  }
  CHECK(f.files.calls().empty());  // nothing of the disk was touched
  CHECK(f.pictures.read(picture('b')).error().code == ErrorCode::kNotFound);
}

TEST_CASE("only a whole regular file of bounded size is handed on") {
  Folder f;
  for (const std::string& content :
       {std::string(), kJpeg.substr(0, kJpeg.size() - 1), std::string(kJpeg.size(), '\0'),
        std::string("<html>"), kJpeg.substr(0, 3) + std::string(2 << 20, 'x') + "\xFF\xD9"}) {
    f.put(picture('a'), content);
    CHECK(f.pictures.read(picture('a')).error().code == ErrorCode::kNotFound);
  }
  f.files.put_file("/elsewhere", kJpeg);
  f.files.put_directory(kFolder + "/bb");
  must(f.files.symbolic_link("/elsewhere", kFolder + "/bb/" + picture('b')));
  CHECK_FALSE(f.pictures.has(picture('b')));
  CHECK(f.pictures.read(picture('b')).error().code == ErrorCode::kNotFound);
  f.files.put_directory(kFolder + "/cc/" + picture('c'));
  CHECK(f.pictures.read(picture('c')).error().code == ErrorCode::kNotFound);
}

TEST_CASE("a sample lists its pictures, and which of them are there") {
  test::Scenario s;
  const std::int64_t id = s.plan(5).id;
  s.bring(id, state::EvaluationState::kEvaluating, "w");
  must(s.store->record_samples(
      id, std::vector<protocol::Scored>{
              {"", "docvqa_val", 0, R"({"doc_id":0})", "f1", {picture('a'), picture('b')}},
              {"", "docvqa_val", 1, R"({"doc_id":1})", "f1"}}));
  protocol::EvaluationResult result;
  result.weights_sha256 = "w";
  result.tasks = {test::anls_result("docvqa_val", 0.5)};
  must(s.store->record_result(id, result));
  Folder f;
  f.put(picture('b'), kJpeg);

  page::SampleQuery query;
  query.run = s.run.name;
  query.evaluation = id;
  query.task = "docvqa_val";
  query.metric = "anls";
  const auto listed =
      nlohmann::json::parse(must(page::sample_list(s.store->read(), query, f.pictures)));

  REQUIRE(listed["samples"].size() == 2);
  CHECK(listed["samples"][0]["pictures"] ==
        nlohmann::json::array(
            {{{"name", picture('a')}, {"kept", false}}, {{"name", picture('b')}, {"kept", true}}}));
  CHECK_FALSE(listed["samples"][1].contains("pictures"));
}
