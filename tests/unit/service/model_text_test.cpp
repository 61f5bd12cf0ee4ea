#include "evaluator/service/model_text.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <set>
#include <string>

#include "store/checkpoint/merge_side_files.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using service::find_model_folders;
using test::FakeClock;
using test::MemoryFileSystem;

namespace {

Result<bool> yes(const std::string&) { return true; }
Result<bool> no(const std::string&) { return false; }

/// A model's text files in folders that hold the same.
struct TextFiles {
  FakeClock clock;
  MemoryFileSystem files{clock};
  std::optional<service::ModelText> model;

  explicit TextFiles(std::initializer_list<std::string> folders) {
    for (const std::string& folder : folders) {
      files.put_file(folder + "/config.json", R"({"max_position_embeddings":10})");
      files.put_file(folder + "/chat_template.jinja", "one");
      files.put_file(
          folder + "/tokenizer.json",
          R"({"added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"},"post_processor":null,"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
    }
  }
  /// Renews it from that folder; how often its vocabulary was opened.
  std::size_t renew(const std::string& folder) {
    files.reset_calls();
    const Status done = service::renew_model_text(
        files, {.config = folder, .tokenizer = folder, .processor = folder}, model);
    INFO((done.has_value() ? "" : done.error().message));
    REQUIRE(done.has_value());
    const auto calls = files.calls();
    return static_cast<std::size_t>(std::ranges::count_if(calls, [&](const test::Call& call) {
      return call.operation == "open_readable" && call.path == folder + "/tokenizer.json";
    }));
  }
  std::string prompt() const { return model->chat_template.render({}, false).value(); }
};

}  // namespace

TEST_CASE("the text files of the next checkpoint are hashed, and read only where they differ") {
  TextFiles scene({"/a", "/b"});
  const std::size_t to_read = scene.renew("/a");

  const std::size_t to_hash = scene.renew("/b");

  CHECK(to_hash == 1);
  CHECK(to_read > to_hash);
  CHECK(scene.prompt() == "one");
  CHECK(scene.model->processor_dir == "/b");  // pictures are prepared by the checkpoint's own
}

TEST_CASE("whichever text file changes is seen") {
  TextFiles scene({"/a", "/b"});
  scene.renew("/a");

  SECTION("the template") {
    scene.files.put_file("/b/chat_template.jinja", "two");
    scene.renew("/b");
    CHECK(scene.prompt() == "two");
  }
  SECTION("the configuration") {
    scene.files.put_file("/b/config.json", R"({"max_position_embeddings":20})");
    scene.renew("/b");
    CHECK(scene.model->max_positions == 20);
  }
  SECTION("the settings of answers") {
    scene.files.put_file("/b/generation_config.json", R"({"repetition_penalty":1.5})");
    scene.renew("/b");
    CHECK(scene.model->generation.repetition_penalty == 1.5);
  }
  SECTION("the vocabulary") {
    std::string text = scene.files.content("/b/tokenizer.json").value();
    text.replace(text.find(R"("a":0)"), 5, R"("a":0,"b":1)");
    scene.files.put_file("/b/tokenizer.json", text);
    scene.renew("/b");
    CHECK(scene.model->tokenizer.size() == 2);
  }
}

TEST_CASE("text files that change while they are read are not taken") {
  TextFiles scene({"/a"});
  int vocabularies = 0;
  scene.files.on_call([&](const test::Call& call) {
    if (call.operation != "open_readable" || call.path != "/a/tokenizer.json") return;
    if (++vocabularies == 2) scene.files.put_file("/a/chat_template.jinja", "two");  // hashed once
  });

  const Status done = service::renew_model_text(
      scene.files, {.config = "/a", .tokenizer = "/a", .processor = ""}, scene.model);

  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code == ErrorCode::kUnavailable);
  CHECK_FALSE(scene.model.has_value());
}

TEST_CASE(
    "each group of files comes from the checkpoint where it has them, else from the base model") {
  FakeClock clock;
  MemoryFileSystem files(clock);
  for (const char* const path :
       {"/c/config.json", "/b/config.json", "/b/tokenizer.json", "/b/preprocessor_config.json"}) {
    files.put_file(path, "{}");
  }

  const auto found = find_model_folders(files, "/c", "/b", yes);

  REQUIRE(found.has_value());
  CHECK(found->config == "/c");
  CHECK(found->tokenizer == "/b");
  CHECK(found->processor == "/b");
}

TEST_CASE("a file that neither folder has is named, with the setting that would help") {
  FakeClock clock;
  MemoryFileSystem files(clock);
  files.put_file("/c/config.json", "{}");

  const auto found = find_model_folders(files, "/c", "", no);

  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().code == ErrorCode::kNotFound);
  CHECK(found.error().message.find("tokenizer.json") != std::string::npos);
  CHECK(found.error().message.find("evaluate.base_model") != std::string::npos);
}

TEST_CASE("a text model needs no processor, and one that reads pictures is told that it lacks it") {
  FakeClock clock;
  MemoryFileSystem files(clock);
  for (const char* const path : {"/c/config.json", "/c/tokenizer.json"}) files.put_file(path, "{}");

  const auto text = find_model_folders(files, "/c", "", no);
  const auto pictures = find_model_folders(files, "/c", "", yes);

  REQUIRE(text.has_value());
  CHECK(text->tokenizer == "/c");
  CHECK(text->processor.empty());
  REQUIRE_FALSE(pictures.has_value());
  CHECK(pictures.error().message.find("preprocessor_config.json") != std::string::npos);
}

TEST_CASE("a merged folder holds the files that the evaluator chooses for the checkpoint itself") {
  constexpr std::array<const char*, 8> kNames = {
      "config.json",           "generation_config.json",   "tokenizer.json",
      "chat_template.jinja",   "preprocessor_config.json", "video_preprocessor_config.json",
      "tokenizer_config.json", "processor_config.json"};
  const auto group = [](const service::ModelFolders& folders, std::string_view name) {
    if (name == "config.json" || name == "generation_config.json") return folders.config;
    return name.find("processor") == std::string_view::npos ? folders.tokenizer : folders.processor;
  };

  for (unsigned which = 0; which < 256; ++which) {
    FakeClock clock;
    MemoryFileSystem files(clock);
    files.put_file("/c/model.safetensors", "");
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      files.put_file(std::string("/b/") + kNames[i], "{}");
      if ((which >> i & 1U) != 0) files.put_file(std::string("/c/") + kNames[i], "{}");
    }
    checkpoint::MergeRequest request;
    request.source_dirs = {"/c"};
    request.side_file_fallback_dir = "/b";

    const auto chosen = find_model_folders(files, "/c", "/b", no);
    const auto merged = checkpoint::find_side_files(files, request);

    REQUIRE(chosen.has_value());
    REQUIRE(merged.has_value());
    std::set<std::string> expected;
    for (const char* const name : kNames) {
      const std::string path = join_path(group(*chosen, name), name);
      if (files.info(path).has_value()) expected.insert(path);
    }
    std::set<std::string> written;
    for (const checkpoint::SideFile& file : merged->files)
      written.insert(join_path(file.folder, file.name));
    INFO("files of the checkpoint: " << which);
    CHECK(written == expected);
  }
}
