#include "tests/gpu/prepared_inputs.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "store/checkpoint/plan.h"

namespace evalcar::testing {
namespace {

constexpr const char* kHint =
    "; make the folder with: build/venv/bin/python tests/gpu/prepare_inputs.py FOLDER";

std::string environment(const char* name, const std::string& fallback) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? fallback : value;
}

}  // namespace

Result<PreparedInputs> PreparedInputs::read(const std::string& folder) {
  const std::filesystem::path root = folder;
  std::ifstream file(root / "cases.json");
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return make_error(ErrorCode::kNotFound, folder + "/cases.json: no JSON there" + kHint);
  PreparedInputs inputs;
  inputs.model = root / "model";
  inputs.other = root / "other/model";
  inputs.vocab = json.at("vocab").get<std::int64_t>();
  inputs.bfloat16_error = json.at("bfloat16_error").get<double>();
  inputs.images = std::make_unique<RawImages>(json.at("images"), root);
  std::ifstream logits(root / "logits.f32", std::ios::binary);
  for (const auto& source : json.at("requests")) {
    PreparedCase one;
    one.request.tokens = source.at("tokens").get<std::vector<std::int32_t>>();
    one.request.images = source.at("images").get<std::vector<std::size_t>>();
    one.tokens = source.at("expected").get<std::vector<std::int32_t>>();
    one.request.generation.max_new_tokens = static_cast<std::int64_t>(one.tokens.size());
    one.logits.resize(one.tokens.size() * static_cast<std::size_t>(inputs.vocab));
    logits.read(reinterpret_cast<char*>(one.logits.data()),
                static_cast<std::streamsize>(one.logits.size() * sizeof(float)));
    if (!logits)
      return make_error(ErrorCode::kCorruption, folder + "/logits.f32: is too short" + kHint);
    inputs.cases.push_back(std::move(one));
  }
  return inputs;
}

std::vector<engine::Request> PreparedInputs::requests() const {
  std::vector<engine::Request> requests;
  for (const PreparedCase& one : cases) requests.push_back(one.request);
  return requests;
}

TestBed find_test_bed() {
  TestBed bed{.device = environment("EVALCAR_GPU_TEST_DEVICE", "cuda"),
              .inputs = environment("EVALCAR_GPU_INPUTS",
                                    std::string(EVALCAR_SOURCE_DIR) + "/build/gpu-inputs"),
              .missing = "",
              .no_device = ""};
  if (const auto device = engine::describe_device(bed.device); !device.has_value())
    bed.missing = bed.no_device = "needs a GPU: " + device.error().message;
  else if (!std::filesystem::exists(bed.inputs + "/cases.json"))
    bed.missing = bed.inputs + "/cases.json is not there" + kHint;
  return bed;
}

Result<std::unique_ptr<engine::Engine>> load_engine(const PreparedInputs& inputs,
                                                    const engine::EngineOptions& options) {
  const RealFileSystem files;
  EVALCAR_ASSIGN_OR_RETURN(auto engine, engine::Engine::create(options));
  EVALCAR_ASSIGN_OR_RETURN(
      const auto plan,
      checkpoint::make_plan(files, inputs.model, checkpoint::WeightsKind::kRegular));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const auto loaded,
                           engine->load(files, plan, inputs.model, "auto", {}, {}));
  return engine;
}

}  // namespace evalcar::testing
