#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>
#include <string>

#include "evaluator/vision/prepare.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::vision;

namespace {

constexpr std::int64_t kMin = 200704;
constexpr std::int64_t kMax = 1605632;

class Folder {
 public:
  Folder& with(const std::string& name, std::string_view text) {
    files_.put_file("/m/" + name, text);
    return *this;
  }
  Result<ProcessorSettings> load(std::int64_t low = kMin, std::int64_t high = kMax) {
    return load_processor_settings(files_, "/m", {.min_pixels = low, .max_pixels = high});
  }

 private:
  test::FakeClock clock_;
  test::MemoryFileSystem files_{clock_};
};

}  // namespace

TEST_CASE("an empty settings object takes the processor's defaults and the caller's limits") {
  const auto settings = Folder().with("preprocessor_config.json", "{}").load(1000, 2000);

  REQUIRE(settings.has_value());
  CHECK(settings->patch_size == 14);
  CHECK(settings->merge_size == 2);
  CHECK(settings->temporal_patch_size == 2);
  CHECK(settings->image_mean[0] == 0.48145466);
  CHECK(settings->min_pixels == 1000);
  CHECK(settings->max_pixels == 2000);
  CHECK_FALSE(settings->slow_processor);
}

TEST_CASE("the nested settings go before the flat file") {
  const auto settings =
      Folder()
          .with("processor_config.json", R"({"image_processor":{"patch_size":16}})")
          .with("preprocessor_config.json", R"({"patch_size":12})")
          .load();

  REQUIRE(settings.has_value());
  CHECK(settings->patch_size == 16);
}

TEST_CASE("a processor_config.json without an image processor leaves it to the flat file") {
  const auto settings = Folder()
                            .with("processor_config.json", R"({"processor_class":"P"})")
                            .with("preprocessor_config.json", R"({"patch_size":12})")
                            .load();

  REQUIRE(settings.has_value());
  CHECK(settings->patch_size == 12);
}

TEST_CASE("every prefix of a settings file is an error that names the file") {
  const std::string text = R"({"patch_size":14,"image_mean":[0.5,0.5,0.5],"do_resize":true})";
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto settings = Folder().with("preprocessor_config.json", text.substr(0, size)).load();
    REQUIRE_FALSE(settings.has_value());
    CHECK(settings.error().code == ErrorCode::kCorruption);
    CHECK(settings.error().message.find("/m/preprocessor_config.json") != std::string::npos);
  }
}

TEST_CASE("a deep nest where a number belongs is an error, not a crash") {
  const std::string nest = std::string(100'000, '[') + std::string(100'000, ']');

  const auto settings =
      Folder().with("preprocessor_config.json", "{\"patch_size\":" + nest + "}").load();

  REQUIRE_FALSE(settings.has_value());
  CHECK(settings.error().message.find("patch_size is an array") != std::string::npos);
}

TEST_CASE("a settings file over its size limit is refused") {
  const std::string large = "{\"x\":\"" + std::string(2 << 20, 'x') + "\"}";

  CHECK_FALSE(Folder().with("preprocessor_config.json", large).load().has_value());
}

TEST_CASE("pixel limits that cannot be are the caller's mistake") {
  Folder folder;
  folder.with("preprocessor_config.json", "{}");

  CHECK(folder.load(0, 100).error().code == ErrorCode::kInvalidArgument);
  CHECK(folder.load(200, 100).error().code == ErrorCode::kInvalidArgument);
  CHECK(folder.load(1, std::int64_t{1} << 40).error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("each setting that a picture's patches follow from is in their text") {
  const ProcessorSettings usual{.sizing = Sizing::kAnyres, .anyres = Anyres{}};
  std::set<std::string> texts = {settings_text(usual)};
  const auto add = [&](const auto& change) {
    ProcessorSettings settings = usual;
    change(settings);
    texts.insert(settings_text(settings));
  };

  add([](auto& s) { s.patch_size = 16; });
  add([](auto& s) { s.merge_size = 1; });
  add([](auto& s) { s.temporal_patch_size = 1; });
  add([](auto& s) { s.sizing = Sizing::kUtils; });
  add([](auto& s) { ++s.min_pixels; });
  add([](auto& s) { ++s.max_pixels; });
  add([](auto& s) { s.slow_processor = true; });
  add([](auto& s) { s.rescale_factor = std::nextafter(s.rescale_factor, 1.0); });
  add([](auto& s) { s.image_mean[2] = std::nextafter(s.image_mean[2], 1.0); });
  add([](auto& s) { s.image_std[1] = std::nextafter(s.image_std[1], 1.0); });
  add([](auto& s) { s.anyres.reset(); });
  add([](auto& s) { s.anyres->tile = 14; });
  add([](auto& s) { s.anyres->side = 14; });
  add([](auto& s) { s.anyres->most_tiles = 4; });
  add([](auto& s) { s.anyres->resolutions = {{.width = 384, .height = 768}}; });
  add([](auto& s) { s.anyres->resolutions = {{.width = 768, .height = 384}}; });

  CHECK(texts.size() == 17);
  CHECK(settings_text(usual) == settings_text(ProcessorSettings(usual)));
}
