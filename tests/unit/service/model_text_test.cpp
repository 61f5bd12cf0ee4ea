#include "evaluator/service/model_text.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>

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

}  // namespace

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
