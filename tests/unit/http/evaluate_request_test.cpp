#include "agent/http/evaluate_request.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "store/base/file_system.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::http;
using test::TemporaryDirectory;
using Json = nlohmann::ordered_json;

namespace {

/// Two run folders under a root, and something beside it.
struct Disk {
  TemporaryDirectory folder;
  RealFileSystem files;
  std::string root = folder / "runs";
  std::string checkpoint = root + "/a/checkpoint-5";

  Disk() {
    for (const std::string& dir : {checkpoint, root + "/b/checkpoint-7", folder / "secret"}) {
      std::filesystem::create_directories(dir);
    }
    std::ofstream(checkpoint + "/model.safetensors") << "x";
    std::filesystem::create_directory_symlink(folder / "secret", root + "/out");
    std::filesystem::create_directory_symlink(checkpoint, root + "/newest");
  }
  EvaluateRules rules() const {
    EvaluateRules rules{.checkpoints = {Places(files, {root}), {}, "checkpoint-{step}"},
                        .tasks = {"docvqa_val", "mmmu_val", "with_examples"},
                        .few_shot_tasks = {"with_examples"}};
    rules.configured.data_dir = "/data";
    rules.configured.limit = 100;
    rules.configured.max_pixels = 1000;
    return rules;
  }
  Json body() const {
    return {{"model", "qwen2_5_vl"},
            {"tasks", {"docvqa_val"}},
            {"model_args", {{"model", checkpoint}}}};
  }
  std::variant<Wish, Response> read(const Json& json) const {
    return read_evaluate_request(rules(), json);
  }
  Wish wish(const Json& json) const {
    auto read_as = read(json);
    if (const auto* const refused = std::get_if<Response>(&read_as)) FAIL(refused->body);
    return std::get<Wish>(read_as);
  }
  unsigned status(const Json& json) const {
    const auto read_as = read(json);
    const auto* const refused = std::get_if<Response>(&read_as);
    return refused == nullptr ? 200 : refused->status;
  }
  unsigned status_with(const char* key, const Json& value) const {
    Json json = body();
    json[key] = value;
    return status(json);
  }
};

}  // namespace

TEST_CASE("a plain request becomes a plan, and is echoed with its defaults") {
  const Disk disk;
  const Wish wish = disk.wish(disk.body());

  CHECK(wish.plan.checkpoint == disk.checkpoint);
  CHECK(wish.plan.kind == "regular");
  CHECK(wish.plan.settings.tasks == std::vector<std::string>{"docvqa_val"});
  CHECK(wish.plan.settings.data_dir == "/data");
  CHECK(wish.plan.settings.max_pixels == 1000);
  CHECK_FALSE(wish.plan.settings.limit.has_value());  // a request's limit is its own
  CHECK(wish.plan.output_dir.empty());
  CHECK(wish.notes.empty());
  const Json echo = Json::parse(wish.request);
  CHECK(echo["log_samples"] == true);
  CHECK(echo["predict_only"] == false);
  CHECK(echo["num_gpus"] == 1);
  CHECK(echo["limit"].is_null());
  CHECK(echo["model_args"]["model"] == disk.checkpoint);
}

TEST_CASE("what lmms-engine sends is understood") {
  const Disk disk;
  Json json = disk.body();
  json["limit"] = 8;
  json["num_fewshot"] = 0;
  json["batch_size"] = 4;
  json["device"] = "cuda";
  json["output_dir"] = disk.checkpoint + "/eval";
  json["lmms_engine_kwargs"] = {
      {"model_path", disk.checkpoint}, {"checkpoint_type", "ema"}, {"output_path", nullptr}};
  json["model_args"]["max_pixels"] = 2000;
  json["model_args"]["attn_implementation"] = "sdpa";
  json["model_args"]["tensor_parallel_size"] = 2;
  json["model_args"]["max_length"] = 2048;
  json["model_args"]["disable_log_stats"] = true;
  const Wish wish = disk.wish(json);

  CHECK(wish.plan.kind == "ema");
  CHECK(wish.plan.settings.limit == 8);
  CHECK(wish.plan.settings.batch_size == 4);
  CHECK(wish.plan.settings.max_pixels == 2000);
  CHECK(wish.plan.settings.attn_implementation == "sdpa");
  CHECK(wish.plan.output_dir.empty());  // never inside the checkpoint
  CHECK_FALSE(std::filesystem::exists(disk.checkpoint + "/eval"));
  CHECK(wish.notes.size() == 4);  // what has no effect is told
  CHECK(std::ranges::count(wish.notes,
                           "max_length=2048: no prompt is cut by it, as in lmms-eval's wrappers, "
                           "which only keep it") == 1);
}

TEST_CASE("what is not known is told, wherever it stands") {
  const Disk disk;
  Json json = disk.body();
  json["foo_bar"] = 3;
  json["min_pixels"] = 4096;  // understood beside model_args, too
  json["pretrained"] = "/elsewhere";
  json["lmms_engine_kwargs"] = {{"model_path", 5},
                                {"output_path", disk.checkpoint + "-merged"},
                                {"checkpoint_type", "regular"},
                                {"odd_key", "x"}};
  const Wish wish = disk.wish(json);

  CHECK(wish.plan.settings.min_pixels == 4096);
  CHECK(wish.plan.output_dir.empty());  // that is where a merge would go, no results
  const std::vector<std::string> expected = {
      "foo_bar=3: not known here", "pretrained=\"/elsewhere\": belongs in model_args",
      "lmms_engine_kwargs.model_path=5: expected the folder of a checkpoint",
      "lmms_engine_kwargs.output_path=\"" + disk.checkpoint +
          "-merged\": nothing is merged on disk for an evaluation (POST /merge does that)",
      "lmms_engine_kwargs.odd_key=\"x\": not known here"};
  CHECK(wish.notes == expected);

  for (int i = 0; i < 300; ++i) json["unknown_" + std::to_string(i)] = i;
  CHECK(disk.wish(json).notes.size() == 101);
}

TEST_CASE("a limit of pixels that a request sets to the default is set") {
  const Disk disk;
  Json json = disk.body();
  json["model_args"]["max_pixels"] = 1605632;
  CHECK(disk.wish(json).plan.settings.max_pixels_set == 1);
  CHECK(disk.wish(json).plan.settings.min_pixels_set == 0);
  json["model_args"]["max_pixels"] = 1605633;
  CHECK(disk.wish(json).plan.settings.max_pixels_set == 0);
}

TEST_CASE("examples before the question are as many as a request asks for, else as configured") {
  const Disk disk;
  Json json = disk.body();
  CHECK_FALSE(disk.wish(json).plan.settings.num_fewshot.has_value());
  json["num_fewshot"] = 3;
  CHECK(disk.wish(json).plan.settings.num_fewshot == 3);
  // As lmms-engine's client always says it: no other evaluation than the configured one.
  json["num_fewshot"] = 0;
  CHECK_FALSE(disk.wish(json).plan.settings.num_fewshot.has_value());
  json["tasks"] = {"docvqa_val", "with_examples"};
  CHECK(disk.wish(json).plan.settings.num_fewshot == 0);
}

TEST_CASE("an attention that lmms-eval does not know is refused in its words") {
  const Disk disk;
  for (const Json& value : {Json("magic"), Json("None"), Json(3)}) {
    Json json = disk.body();
    json["model_args"]["attn_implementation"] = value;
    const auto read = disk.read(json);
    REQUIRE(std::holds_alternative<Response>(read));
    CHECK(std::get<Response>(read).status == 422);
    CHECK(std::get<Response>(read).body.find(
              "attn_implementation must be one of [None, 'flash_attention_2', 'sdpa', 'eager']") !=
          std::string::npos);
  }
}

TEST_CASE("a request that names another wrapper than the checkpoint is asked as is told so") {
  const Disk disk;
  const auto notes_for = [&](const char* model, const char* config) {
    std::ofstream(disk.checkpoint + "/config.json") << config;
    Json json = disk.body();
    json["model"] = model;
    return disk.wish(json).notes;
  };
  const auto of_family = [](const char* family) { return Json{{"model_type", family}}.dump(); };
  const std::string qwen3 = of_family("qwen3_vl");

  REQUIRE(notes_for("qwen_vl", qwen3.c_str()).size() == 1);
  CHECK(notes_for("qwen_vl", qwen3.c_str())[0] ==
        "model=qwen_vl: the checkpoint is of the family qwen3_vl, asked as lmms-eval's wrapper "
        "qwen3_vl, not qwen_vl: its prompt, pictures and limit of tokens may differ");
  for (const char* const other : {"vllm", "vllm_chat", "sglang", "hf", "qwen2_5_vl"})
    CHECK(notes_for(other, qwen3.c_str()).size() == 1);
  for (const char* const same : {"qwen3_vl", "qwen3_vl_chat"})
    CHECK(notes_for(same, qwen3.c_str()).empty());
  // These have a wrapper of their own in lmms-eval, and are not asked as that asks.
  for (const char* const family : {"qwen2_vl", "llava_onevision"})
    CHECK(notes_for(family, of_family(family).c_str()).size() == 1);
  CHECK(notes_for("qwen2_vl", of_family("qwen2_vl").c_str())[0].find("wrapper huggingface, not") !=
        std::string::npos);
  CHECK(notes_for("llava_hf", of_family("llava_onevision").c_str()).empty());
  CHECK(notes_for("huggingface", of_family("llama").c_str()).empty());
  for (const char* const unknown : {"{", "[]", "{}", R"({"model_type": 3})"}) {
    CHECK(notes_for("vllm", unknown).empty());
  }
}

TEST_CASE("the checkpoint is found wherever it is named, and must be one") {
  const Disk disk;
  const auto with = [&](const Json& arguments) {
    Json json = disk.body();
    json["model_args"] = arguments;
    return json;
  };
  const std::string other = disk.root + "/b/checkpoint-7";

  CHECK(disk.wish(with({{"pretrained", disk.checkpoint}})).plan.checkpoint == disk.checkpoint);
  CHECK(disk.wish(with({{"model_path", disk.checkpoint}})).plan.checkpoint == disk.checkpoint);
  CHECK(disk.wish(with({{"whatever", disk.checkpoint}})).plan.checkpoint == disk.checkpoint);
  CHECK(disk.wish(with({{"pretrained", disk.root + "/newest"}})).plan.checkpoint ==
        disk.checkpoint);
  CHECK(disk.wish(with({{"model", "Qwen/Qwen2.5-VL"}, {"pretrained", disk.checkpoint}}))
            .plan.checkpoint == disk.checkpoint);
  CHECK(disk.status(with({{"model", disk.checkpoint}, {"pretrained", other}})) == 422);
  CHECK(disk.status(with({{"model", "Qwen/Qwen2.5-VL"}})) == 422);
  CHECK(disk.status(with({{"model", "http://169.254.169.254/latest"}})) == 422);
  CHECK(disk.status(with({{"model", disk.root + "/a/checkpoint-6"}})) == 422);
  CHECK(disk.status(with(Json::object())) == 422);
}

TEST_CASE("the folder of another model beside the checkpoint is told and not read") {
  const Disk disk;
  const std::string base = disk.folder / "secret";
  for (const char* const key : {"pretrained", "model_path"}) {
    Json json = disk.body();
    json["lmms_engine_kwargs"] = {{"model_path", disk.checkpoint}};
    json["model_args"] = {{key, base}, {"model", disk.root + "/newest"}};
    const Wish wish = disk.wish(json);
    CHECK(wish.plan.checkpoint == disk.checkpoint);
    CHECK(wish.notes == std::vector<std::string>{std::string(key) + "=\"" + base +
                                                 "\": names no checkpoint of this agent"});
    json["lmms_engine_kwargs"]["model_path"] = base;  // what was saved lies nowhere else
    CHECK(disk.status(json) == 403);
    json.erase("lmms_engine_kwargs");
    CHECK(disk.wish(json).plan.checkpoint == disk.checkpoint);
    json["model_args"].erase("model");
    CHECK(disk.status(json) == 403);
  }
}

TEST_CASE("no other checkpoint takes the place of the one that is gone") {
  const Disk disk;
  EvaluateRules rules = disk.rules();
  rules.knows = [](const std::string&, const std::string&) -> Result<bool> { return false; };
  const auto refusal = [&](const Json& json) -> std::string {
    const auto read_as = read_evaluate_request(rules, json);
    const auto* const refused = std::get_if<Response>(&read_as);
    return refused == nullptr ? "" : Json::parse(refused->body)["detail"].get<std::string>();
  };
  const std::string gone = disk.root + "/a/checkpoint-9";
  Json json = disk.body();
  json["lmms_engine_kwargs"] = {{"model_path", gone}};
  CHECK(refusal(json) == gone + ": no such folder");
  json["lmms_engine_kwargs"] = {{"model_path", disk.root}};  // there, and no checkpoint
  CHECK(refusal(json).find("no checkpoint by its name") != std::string::npos);
  json.erase("lmms_engine_kwargs");
  json["model_args"]["pretrained"] = gone;
  CHECK(refusal(json) == "different checkpoints are named: " + disk.checkpoint + ", " + gone);
  json["model_args"]["pretrained"] = disk.root + "/a/no checkpoint";
  CHECK(refusal(json).empty());
}

TEST_CASE("no path leads out of the roots") {
  const Disk disk;
  for (const std::string& path :
       {std::string("/etc"), disk.folder / "secret", disk.root + "/../secret", disk.root + "/out",
        disk.root + "/out/../secret", disk.folder / "nothing"}) {
    CAPTURE(path);
    Json json = disk.body();
    json["model_args"] = {{"pretrained", path}};
    CHECK(disk.status(json) == 403);
    json = disk.body();
    json["lmms_engine_kwargs"] = {{"model_path", path}};
    CHECK(disk.status(json) == 403);
    CHECK(disk.status_with("output_dir", path + "/new") == 403);
  }
  CHECK(disk.status_with("model_args", {{"pretrained", "../secret"}}) == 422);
  CHECK(disk.status_with("model_args", {{"pretrained", disk.checkpoint + " "}}) == 422);
  CHECK(disk.status_with("model_args", {{"pretrained", disk.checkpoint + std::string(1, '\0')}}) ==
        422);
  CHECK(disk.status_with("model_args", {{"pretrained", disk.root + "/%2e%2e/secret"}}) == 422);
}

TEST_CASE("results may go anywhere under the roots but into a checkpoint") {
  const Disk disk;
  Json json = disk.body();
  json["output_dir"] = disk.root + "/results/x";
  CHECK(disk.wish(json).plan.output_dir == disk.root + "/results/x");
  CHECK_FALSE(std::filesystem::exists(disk.root + "/results"));
  CHECK(disk.status_with("output_dir", disk.checkpoint) == 403);
  CHECK(disk.status_with("output_dir", disk.checkpoint + "/other") == 403);
  CHECK(disk.status_with("output_dir", disk.checkpoint + "/eval/deeper") == 403);
  CHECK(disk.status_with("output_dir", disk.root + "/a/checkpoint-5-results") == 403);
  CHECK(disk.status_with("output_dir", "relative") == 422);
}

TEST_CASE("fields of the wrong kind are answered as pydantic answers them") {
  const Disk disk;
  const auto refused = std::get<Response>(
      disk.read({{"tasks", "docvqa_val"}, {"model_args", 7}, {"batch_size", 1.5}}));
  const Json detail = Json::parse(refused.body)["detail"];

  CHECK(refused.status == 422);
  REQUIRE(detail.size() == 4);
  CHECK(detail[0]["type"] == "missing");
  CHECK(detail[0]["loc"] == Json{"body", "model"});
  CHECK(detail[0]["msg"] == "Field required");
  CHECK(detail[1]["type"] == "list_type");
  CHECK(detail[2]["type"] == "dict_type");
  CHECK(disk.status(Json::array()) == 422);
  CHECK(disk.status("text") == 422);
  for (const auto& [key, value] : std::map<const char*, Json>{{"num_fewshot", "x"},
                                                              {"num_fewshot", -1},
                                                              {"num_fewshot", 1001},
                                                              {"limit", -1},
                                                              {"limit", 2.5},
                                                              {"log_samples", "perhaps"},
                                                              {"gen_kwargs", 1},
                                                              {"output_dir", 1}}) {
    CAPTURE(key, value.dump());
    CHECK(disk.status_with(key, value) == 422);
  }
  CHECK(disk.status_with("num_fewshot", 3) == 200);
  CHECK(disk.status_with("unknown_field", 3) == 200);
}

TEST_CASE("nothing is smuggled in through the name of a task") {
  const Disk disk;
  for (const char* const task : {"docvqa_val,mmmu_val", "docvqa_val --x", "$(touch x)", "/x/y.yaml",
                                 "`id`", "docvqa_val\nmmmu_val", "", "-h"}) {
    CAPTURE(task);
    CHECK(disk.status_with("tasks", Json::array({task})) == 422);
  }
  CHECK(disk.status_with("tasks", Json::array()) == 422);
  const auto refused = std::get<Response>(
      disk.read({{"model", "m"}, {"tasks", Json::array({std::string(60'000, 'x')})}}));
  CHECK(refused.body.size() < 2'000);
}

TEST_CASE("a checkpoint that was removed is meant all the same, if the agent knows it") {
  const Disk disk;
  std::filesystem::create_directory_symlink(disk.folder / "secret/none", disk.root + "/a/dangling");
  std::vector<std::string> asked;
  auto rules = disk.rules();
  rules.knows = [&](const std::string& checkpoint, const std::string& kind) -> Result<bool> {
    asked.push_back(checkpoint + " " + kind);
    if (checkpoint.ends_with("-8")) return make_error(ErrorCode::kUnavailable, "busy");
    return checkpoint == disk.root + "/a/checkpoint-9" && kind == "ema";
  };
  const auto answer = [&](const std::string& path, const std::string& kind,
                          const Json& output = nullptr) {
    Json json = disk.body();
    json["model_args"]["model"] = path;
    json["model_args"]["also"] = path;
    json["lmms_engine_kwargs"] = {{"model_path", path}, {"checkpoint_type", kind}};
    json["output_dir"] = output;
    return read_evaluate_request(rules, json);
  };
  const auto status = [&](const std::string& path, const std::string& kind,
                          const Json& output = nullptr) {
    const auto read_as = answer(path, kind, output);
    const auto* const refused = std::get_if<Response>(&read_as);
    return refused == nullptr ? 200U : refused->status;
  };
  const std::string gone = disk.root + "/a/checkpoint-9";

  for (const std::string& path : {gone, gone + "/", disk.root + "/newest/../checkpoint-9"}) {
    INFO(path);
    const auto read_as = answer(path, "ema", gone + "/eval");
    REQUIRE(std::holds_alternative<Wish>(read_as));
    const Wish& wish = std::get<Wish>(read_as);
    CHECK(wish.plan.checkpoint == gone);
    CHECK(wish.plan.output_dir.empty());
    CHECK(wish.notes.empty());
  }
  CHECK(status(gone, "regular") == 422);
  CHECK(status(disk.root + "/a/checkpoint-10", "ema") == 422);
  CHECK(status(disk.root + "/a/checkpoint-8", "ema") == 503);  // asked for again later
  CHECK(status(gone, "ema", gone + "/results") == 403);        // it is not made again

  asked.clear();
  CHECK(status(disk.folder / "secret/checkpoint-9", "ema") == 403);
  CHECK(status(disk.root + "/out/checkpoint-9", "ema") == 403);
  CHECK(status(gone + "/../checkpoint-9", "ema") == 422);
  CHECK(status(disk.root + "/a/dangling", "ema") != 200);
  CHECK(status(disk.root + "/a/none/..", "ema") == 422);
  CHECK(status(disk.checkpoint + "/model.safetensors", "ema") == 422);
  CHECK(asked.empty());

  Json many = disk.body();
  many["model_args"] = Json::object();
  for (int i = 10; i < 100; ++i) {
    many["model_args"]["a" + std::to_string(i)] = disk.root + "/a/checkpoint-1" + std::to_string(i);
  }
  CHECK(std::holds_alternative<Response>(read_evaluate_request(rules, many)));
  CHECK(asked.size() == 4);
}
