#include "evaluator/service/model_text.h"

#include <catch2/catch_test_macros.hpp>

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
