#include "evaluator/service/fingerprint.h"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <set>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using service::common_identity;
using service::hash_model_files;
using service::TaskFingerprint;
using test::FakeClock;
using test::MemoryFileSystem;

namespace {

/// All that a fingerprint is made of.
struct Ingredients {
  engine::LoadedWeights weights{.architecture = "qwen2_5_vl", .dtype = "float32"};
  std::string files_sha256 = "aa";
  std::string base_model;
  protocol::EvaluationSettings settings{.tasks = {"t"}, .data_dir = "/d"};
  engine::RunChoice choice{.attn_implementation = "sdpa"};
  tasks::TaskFile file{.name = "t", .version = "Yaml", .content = "text = 'Q'"};
  std::int64_t size = 10;
  std::string data = "val.jsonl 20 cafe\n";
  std::string generation = "{}";
  std::int64_t doc_id = 0;
  std::string document = R"({"q":"?","a":"x"})";
  engine::Request request{.tokens = {1, 2, 3}};
  std::vector<Sha256Digest> pictures = {Sha256Digest{1}};

  service::TaskIdentity identity() const {
    TaskFingerprint made(common_identity(weights, files_sha256, settings, choice),
                         service::series_way(weights, base_model), file, size, data, generation);
    made.add(doc_id, document, request, pictures);
    return made.finish();
  }
  std::string fingerprint() const { return identity().fingerprint; }
  std::string question() const { return identity().question; }
};

std::string hash_of(const MemoryFileSystem& files, const service::ModelFolders& folders) {
  const auto hash = hash_model_files(files, folders);
  REQUIRE(hash.has_value());
  return *hash;
}

}  // namespace

TEST_CASE("whatever changes a prompt, a pixel or a score changes the fingerprint") {
  const std::vector<std::function<void(Ingredients&)>> changes = {
      [](Ingredients& i) { i.weights.dtype = "bfloat16"; },
      [](Ingredients& i) { i.weights.architecture = "qwen2_vl"; },
      [](Ingredients& i) { i.files_sha256 = "ab"; },
      [](Ingredients& i) { i.settings.max_pixels = 500000; },
      [](Ingredients& i) { i.settings.compat = "strict"; },
      [](Ingredients& i) { i.settings.seed = 1; },
      [](Ingredients& i) { i.settings.limit = 3; },
      [](Ingredients& i) { i.choice.attn_implementation = "eager"; },
      [](Ingredients& i) { i.file.version = "2"; },
      [](Ingredients& i) { i.file.content = "text = 'R'"; },
      [](Ingredients& i) { i.size = 11; },
      [](Ingredients& i) { i.data = "val.jsonl 20 caff\n"; },
      [](Ingredients& i) { i.generation = R"({"temperature":1})"; },
      [](Ingredients& i) { i.doc_id = 1; },
      [](Ingredients& i) { i.document = R"({"q":"?","a":"y"})"; },
      [](Ingredients& i) { i.request.tokens = {1, 2, 4}; },
      [](Ingredients& i) { i.request.tokens.push_back(3); },
      [](Ingredients& i) { i.pictures[0][31] = 1; },
      [](Ingredients& i) { i.pictures.emplace_back(); },
      [](Ingredients& i) { i.pictures.clear(); }};
  std::set<std::string> seen = {Ingredients{}.fingerprint()};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Ingredients changed;
    changes[i](changed);
    INFO("change " << i);
    CHECK(seen.insert(changed.fingerprint()).second);
  }
}

TEST_CASE("where things lie and how the work is cut do not change the fingerprint") {
  Ingredients moved;
  moved.settings.data_dir = "/elsewhere";
  moved.settings.tasks_dir = "/tasks";
  moved.settings.batch_size = 4;
  moved.settings.tasks = {"u", "t"};
  moved.file.source = "/tasks/t.toml";
  CHECK(moved.fingerprint() == Ingredients{}.fingerprint());
}

TEST_CASE("whatever is asked otherwise, or counted otherwise, is another question") {
  const std::vector<std::function<void(Ingredients&)>> changes = {
      [](Ingredients& i) { i.weights.dtype = "bfloat16"; },
      [](Ingredients& i) { i.base_model = "/models/base"; },
      [](Ingredients& i) { i.file.version = "2"; },
      [](Ingredients& i) { i.file.content = "text = 'R'"; },
      [](Ingredients& i) { i.size = 11; },
      [](Ingredients& i) { i.data = "val.jsonl 20 caff\n"; },
      [](Ingredients& i) { i.generation = R"({"temperature":1})"; },
      [](Ingredients& i) { i.doc_id = 1; },
      [](Ingredients& i) { i.document = R"({"q":"?","a":"y"})"; },
      [](Ingredients& i) { i.pictures[0][31] = 1; },
      [](Ingredients& i) { i.pictures.emplace_back(); },
      [](Ingredients& i) { i.pictures.clear(); }};
  std::set<std::string> seen = {Ingredients{}.question()};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Ingredients changed;
    changes[i](changed);
    INFO("change " << i);
    CHECK(seen.insert(changed.question()).second);
  }
}

TEST_CASE("another checkpoint, way of computing or place of the files asks the same question") {
  const std::vector<std::function<void(Ingredients&)>> changes = {
      [](Ingredients& i) { i.weights.architecture = "qwen2_vl"; },
      [](Ingredients& i) { i.files_sha256 = "ab"; },
      [](Ingredients& i) { i.choice.attn_implementation = "eager"; },
      [](Ingredients& i) { i.request.tokens = {1, 2, 4}; },
      [](Ingredients& i) { i.settings.data_dir = "/elsewhere"; },
      [](Ingredients& i) { i.settings.tasks = {"u", "t"}; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Ingredients changed;
    changes[i](changed);
    INFO("change " << i);
    CHECK(changed.question() == Ingredients{}.question());
  }
}

TEST_CASE("no two lists of earlier tasks run into one another") {
  const auto of = [](const std::vector<std::string>& parts) {
    TaskFingerprint made("", "", {}, 0, "", "");
    for (const std::string& part : parts) made.add_earlier({part, part});
    return made.finish();
  };
  for (const auto part : {&service::TaskIdentity::fingerprint, &service::TaskIdentity::question}) {
    CHECK(of({"ab", "c"}).*part != of({"a", "bc"}).*part);
    CHECK(of({"1:a", ""}).*part != of({"", "1:a"}).*part);
  }
}

TEST_CASE("every text file of a model counts, with its content and with its absence") {
  FakeClock clock;
  MemoryFileSystem files(clock);
  for (const char* const path : {"/c/config.json", "/b/tokenizer.json", "/b/chat_template.jinja",
                                 "/p/preprocessor_config.json"}) {
    files.put_file(path, "{}");
  }
  const service::ModelFolders folders{"/c", "/b", "/p"};
  std::set<std::string> seen = {hash_of(files, folders)};
  for (const char* const path :
       {"/c/config.json", "/c/generation_config.json", "/b/tokenizer.json",
        "/b/tokenizer_config.json", "/b/special_tokens_map.json", "/b/chat_template.jinja",
        "/b/chat_template.json", "/b/additional_chat_templates/default.jinja",
        "/b/processor_config.json", "/p/preprocessor_config.json", "/p/processor_config.json"}) {
    files.put_file(path, "{ }");
    INFO(path);
    CHECK(seen.insert(hash_of(files, folders)).second);
  }
  files.put_file("/b/README.md", "hello");
  CHECK_FALSE(seen.insert(hash_of(files, folders)).second);
}

TEST_CASE("equal files in another folder are the same model") {
  FakeClock clock;
  MemoryFileSystem files(clock);
  for (const char* const folder : {"/a", "/b"}) {
    for (const char* const name : {"config.json", "tokenizer.json", "preprocessor_config.json"})
      files.put_file(join_path(folder, name), name);
  }
  clock.advance(std::chrono::seconds(60));
  files.put_file("/b/config.json", "config.json");  // touched
  CHECK(hash_of(files, {"/a", "/a", "/a"}) == hash_of(files, {"/b", "/b", "/b"}));
}
