#include "store/checkpoint/hub_cache.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "store/checkpoint/adapter_base.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::checkpoint;

namespace {

struct Machine {
  std::string find(const HubModel& model) const {
    const auto found = find_model(files, model, {"/data", "/cache"});
    return found.has_value() ? *found : "error: " + found.error().message;
  }

  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
};

/// Sets the variables that name caches, and puts them back at the end.
class CacheVariables {
 public:
  explicit CacheVariables(const std::map<std::string, std::string>& values) {
    for (const char* const name : kNames) {
      if (const char* const old = std::getenv(name)) old_[name] = old;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~CacheVariables() {
    for (const char* const name : kNames) {
      ::unsetenv(name);
      if (old_.contains(name)) ::setenv(name, old_[name].c_str(), 1);
    }
  }
  CacheVariables(const CacheVariables&) = delete;
  CacheVariables& operator=(const CacheVariables&) = delete;

 private:
  static constexpr std::array<const char*, 5> kNames = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
                                                        "HF_HOME", "XDG_CACHE_HOME", "HOME"};
  std::map<std::string, std::string> old_;
};

using Places = std::vector<std::string>;

}  // namespace

TEST_CASE("a folder is taken as it is, before any cache is searched") {
  Machine machine;
  machine.files.put_file("/models/mine/config.json", "{}");

  CHECK(machine.find({"/models/mine"}) == "/models/mine");
}

TEST_CASE("a model under the data folder is found by its id, in either form") {
  Machine machine;
  machine.files.put_file("/data/o/local/config.json", "{}");
  machine.files.put_file("/data/models--o--cached/snapshots/abc/config.json", "{}");
  machine.files.put_file("/data/hub/models--gpt2/snapshots/abc/config.json", "{}");

  CHECK(machine.find({"o/local"}) == "/data/o/local");
  CHECK(machine.find({"o/cached"}) == "/data/models--o--cached/snapshots/abc");
  CHECK(machine.find({"gpt2"}) == "/data/hub/models--gpt2/snapshots/abc");
}

TEST_CASE("of several snapshots the one that refs/main names is taken, else the newest") {
  Machine machine;
  const std::string model = "/cache/models--o--n";
  machine.files.put_file(model + "/snapshots/aaa/config.json", "{}");
  machine.clock.advance(std::chrono::seconds(1));
  machine.files.put_file(model + "/snapshots/zzz/config.json", "{}");

  CHECK(machine.find({"o/n"}) == model + "/snapshots/zzz");
  machine.files.put_file(model + "/refs/main", "aaa\n");
  CHECK(machine.find({"o/n"}) == model + "/snapshots/aaa");
}

TEST_CASE("a revision is a branch, a tag or a commit, and nothing stands in for it") {
  Machine machine;
  const std::string model = "/cache/models--o--n";
  machine.files.put_file(model + "/snapshots/aaa/config.json", "{}");
  machine.files.put_file(model + "/refs/refs/pr/1", "aaa");

  CHECK(machine.find({"o/n", "refs/pr/1"}) == model + "/snapshots/aaa");
  CHECK(machine.find({"o/n", "aaa"}) == model + "/snapshots/aaa");
  CHECK(machine.find({"o/n", "v2"}).find("hf download o/n --revision v2") != std::string::npos);
  CHECK(machine.find({"o/n", "../../x"}).find("no branch, tag or commit") != std::string::npos);
}

TEST_CASE("a snapshot without the file that is needed does not count") {
  Machine machine;
  machine.files.put_file("/data/models--o--n/snapshots/aaa/tokenizer.json", "{}");
  machine.files.put_file("/data/models--o--n/refs/main", "aaa");
  machine.files.put_file("/cache/models--o--n/snapshots/bbb/config.json", "{}");

  CHECK(machine.find({"o/n"}) == "/cache/models--o--n/snapshots/bbb");
  CHECK(machine.find({.id = "o/n", .needed = "tokenizer.json"}) ==
        "/data/models--o--n/snapshots/aaa");
}

TEST_CASE("a model that is not on the machine is told with the command that fetches it") {
  const Machine machine;

  const auto found = find_model(machine.files, {"Qwen/Qwen2.5-VL-7B-Instruct"}, {"/data"});

  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().code == ErrorCode::kNotFound);
  CHECK(found.error().message.find("hf download Qwen/Qwen2.5-VL-7B-Instruct") != std::string::npos);
  CHECK(found.error().message.find("/data/models--Qwen--Qwen2.5-VL-7B-Instruct/snapshots") !=
        std::string::npos);
}

TEST_CASE("a ref that leads out of the cache is not followed") {
  Machine machine;
  machine.files.put_file("/secret/config.json", "{}");
  machine.files.put_directory("/cache/models--o--n/snapshots/aaa");
  for (const char* const ref : {"../../../secret", "..", ".", "", "/secret"}) {
    INFO(ref);
    machine.files.put_file("/cache/models--o--n/refs/main", ref);

    CHECK(machine.find({"o/n"}).starts_with("error: "));
  }
}

TEST_CASE("the hub's own rules say what an id is") {
  for (const char* const id : {"gpt2", "Qwen/Qwen2.5-VL-7B-Instruct", "a/b_c.d"}) {
    INFO(id);
    CHECK(is_hub_id(id));
  }
  for (const char* const text :
       {"", "/", "a/", "/b", "a/b/c", "-a/b", "a/b.", "a--b", "a/..", "a b", "a/b.git", "./a"}) {
    INFO(text);
    CHECK_FALSE(is_hub_id(text));
  }
  CHECK_FALSE(is_hub_id(std::string(97, 'a')));
}

TEST_CASE("the environment names the cache as it does for huggingface_hub") {
  const auto places = [](const std::map<std::string, std::string>& values) {
    const CacheVariables variables(values);
    return hub_places("/data");
  };

  CHECK(places({{"HOME", "/h"}}) == Places{"/data", "/h/.cache/huggingface/hub"});
  CHECK(places({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}) ==
        Places{"/data", "/x/huggingface/hub"});
  CHECK(places({{"HOME", "/h"}, {"HF_HOME", "/f"}}) == Places{"/data", "/f/hub"});
  CHECK(places({{"HF_HOME", "/f"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}) == Places{"/data", "/old"});
  CHECK(places({{"HF_HUB_CACHE", "/c"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}) ==
        Places{"/data", "/c"});
  CHECK(places({}) == Places{"/data"});
}

TEST_CASE(
    "an adapter's base of an id is the hub's, never a folder where the agent happens to run") {
  const std::map<std::string, std::string> values = {{"HF_HUB_CACHE", "/cache"}};
  const CacheVariables variables(values);
  const std::string snapshot = "/cache/models--o--n/snapshots/abc";
  const auto base_with = [&](bool cached, const char* here, const std::string& given = {}) {
    Machine machine;  // relative paths begin at its root
    machine.files.put_file("/run/checkpoint-5/adapter_config.json",
                           R"({"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q"],)"
                           R"("base_model_name_or_path":"o/n","revision":"abc"})");
    if (cached) machine.files.put_file(snapshot + "/config.json", "{}");
    if (here != nullptr) machine.files.put_file(std::string("/o/n/") + here, "{}");
    const auto found = adapter_base(machine.files, "/run/checkpoint-5", given);
    return found.has_value() ? *found : "error: " + found.error().message;
  };

  CHECK(base_with(true, nullptr) == snapshot);
  CHECK(base_with(true, "notes.txt") == snapshot);  // no model
  for (const bool cached : {true, false}) {
    const std::string refused = base_with(cached, "config.json");
    INFO(refused);
    CHECK(refused.starts_with("error: "));
    CHECK(refused.find("evaluate.base_model") != std::string::npos);
    CHECK(refused.find("o/n in the working directory") != std::string::npos);
    CHECK((refused.find(snapshot) != std::string::npos) == cached);
  }
  CHECK(base_with(true, "config.json", "o/n") == "o/n");  // somebody has said so
}
