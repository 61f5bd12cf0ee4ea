// engine_probe JOB.json: runs the engine for the Python tests and prints one JSON document.
//
// JOB: {"options": {device, dtype, attn_implementation, batch_size, threads, prefill_tokens,
// draft_rows, share_prefixes, decode_graphs, patch_size, image_mean, image_std,
// encoded_pictures_bytes, out_of_memory_from: N (as if packs of N and more sequences did not fit),
// out_of_memory_once: N (as if the N-th pack of all did not fit), anyres_folder: DIR (the pictures
// are of any size, and are cut into squares by this folder's processor, for patches of
// patch_size)},
//       "images": [{"rgb": FILE, "height": H, "width": W, "key": K, "sha256": S or absent}, …]
//       raw uint8 RGB of the exact grid;
//       "runs": [{"rename": [FROM, TO] (before all else), "folder": DIR,
//       "prefetch": DIR (after the load), "logits": FILE or null, "unload": bool, "repeat": N,
//       "profile": bool, "cancel_after": N (answers), "cancel_at_step": N (the N-th call of
//       RunEvents::advanced), "out_of_memory_at_step": N (as if what that call is of did not fit;
//       without pictures), "out_of_memory_behind_pictures": N (as if what follows the pictures of
//       packs of N and more sequences did not fit; with picture_threads 0), "ends": [token, …] (an
//       answer ends with these tokens in a row),
//                 "requests": [{"tokens", "images", "max_new_tokens", "stop_ids",
//                 "repetition_penalty",
//                               "temperature", "top_p", "top_k", "seed", "stream", "draft",
//                               "expected_tokens", "answered_before": bool,
//                               "spans": [[begin, end], …], "continuations": [[token, …], …]}, …]},
//                               …]}, …]}
// All runs of a session use one engine, in order. Printed: per session {"runs": [{"loaded": {…},
// "prefetch": "" or what was wrong,
// "answers": [{tokens, stopped, ended: true (if RunEvents::ends said so), drafted: [tried, taken]
// (where any were), scores: [[log-likelihood, tokens, greedy], …]}], "order": […], "shrunk": [N,
// …], "narrowed": [reason, …], "packs": [sequences, …], "encoded": N, "reused": N (pictures),
// "seconds": […], "peak_rss_bytes": N, "profile": {busy, span, kernels: [[name, count, seconds],
// …]} (what a GPU did in one run more)} or {"error": {code, message}}]}. The logits file holds
// float32 (step, vocab) of request 0, then of request 1, ….

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/engine/engine.h"
#include "store/base/file_system.h"
#include "store/checkpoint/plan.h"
#include "tests/gpu/device_profile.h"
#include "tests/gpu/raw_images.h"

namespace {

using evalcar::Result;
using evalcar::Status;
using nlohmann::json;
namespace engine = evalcar::engine;
namespace vision = evalcar::vision;

engine::Request request_of(const json& source) {
  engine::Request request;
  request.tokens = source.at("tokens").get<std::vector<std::int32_t>>();
  request.images = source.value("images", std::vector<std::size_t>{});
  auto& generation = request.generation;
  generation.max_new_tokens = source.value("max_new_tokens", std::int64_t{32});
  generation.stop_ids = source.value("stop_ids", std::vector<std::int32_t>{});
  generation.repetition_penalty = source.value("repetition_penalty", 1.0);
  generation.temperature = source.value("temperature", 0.0);
  generation.top_p = source.value("top_p", 1.0);
  generation.top_k = source.value("top_k", std::int64_t{0});
  generation.seed = source.value("seed", std::uint64_t{0});
  request.draft = source.value("draft", std::vector<std::int32_t>{});
  if (source.contains("expected_tokens")) request.expected_tokens = source["expected_tokens"];
  request.answered_before = source.value("answered_before", false);
  if (source.contains("spans") || source.contains("continuations")) {
    auto& scoring = request.scoring.emplace();
    for (const json& span : source.value("spans", json::array()))
      scoring.spans.push_back({span.at(0), span.at(1)});
    scoring.continuations = source.value("continuations", std::vector<std::vector<std::int32_t>>{});
  }
  return request;
}

/// Of this program since it was started. (ru_maxrss counts what the parent held when it forked.)
std::uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

/// Raw pictures of any size, prepared as the settings say.
class AnyPictures final : public engine::ImageSource {
 public:
  AnyPictures(const json& images, vision::ProcessorSettings settings)
      : images_(images), settings_(std::move(settings)) {}
  std::size_t size() const override { return images_.size(); }
  std::uint64_t key_of(std::size_t index) const override {
    return images_[index].value("key", std::uint64_t{index});
  }
  std::optional<evalcar::Sha256Digest> content_of(std::size_t index) const override {
    return evalcar::testing::told_content(images_[index]);
  }
  vision::PreparedSize size_of(std::size_t index) const override {
    return *vision::prepared_size(images_[index]["height"].get<int>(),
                                  images_[index]["width"].get<int>(), settings_);
  }
  Result<vision::PreparedImage> load(std::size_t index) const override {
    vision::Image image{.width = images_[index]["width"].get<int>(),
                        .height = images_[index]["height"].get<int>(),
                        .rgb = {}};
    std::ifstream file(images_[index]["rgb"].get<std::string>(), std::ios::binary);
    image.rgb.assign(std::istreambuf_iterator<char>(file), {});
    return vision::prepare_image(image, settings_);
  }

 private:
  const json& images_;
  vision::ProcessorSettings settings_;
};

class Probe {
 public:
  Probe(const json& job, const json& images) : job_(job), processor_(processor(job)) {
    if (job_.at("options").contains("anyres_folder"))
      images_ = std::make_unique<AnyPictures>(images, processor_);
    else
      images_ = std::make_unique<evalcar::testing::RawImages>(images, std::filesystem::path(),
                                                              processor_.patch_size);
  }

  json run() {
    engine::EngineOptions options;
    const json& given = job_.at("options");
    options.device = given.value("device", "cpu");
    options.dtype = given.value("dtype", "auto");
    options.attn_implementation = given.value("attn_implementation", "");
    options.batch_size = given.value("batch_size", std::int64_t{0});
    options.threads = given.value("threads", 0);
    options.prefill_tokens = given.value("prefill_tokens", std::int64_t{0});
    options.scored_rows = given.value("scored_rows", std::int64_t{0});
    options.encoded_pictures_bytes = given.value("encoded_pictures_bytes", std::uint64_t{0});
    options.cache_bytes = given.value("cache_bytes", std::uint64_t{0});
    if (given.contains("cache_budget"))
      options.cache_budget = [of = given["cache_budget"]](std::uint64_t ahead) {
        const auto free = of["free"].get<std::uint64_t>();
        const std::uint64_t now = free - (ahead > 0 ? of["next"].get<std::uint64_t>() : 0);
        return engine::CacheBudget{now, free, of["planned"], of["alone"]};
      };
    if (given.contains("picture_threads")) options.picture_threads = given["picture_threads"];
    if (given.contains("draft_rows")) options.draft_rows = given["draft_rows"];
    options.share_prefixes = given.value("share_prefixes", true);
    options.decode_graphs = given.value("decode_graphs", true);
    options.rank = given.value("rank", std::int64_t{0});
    options.world_size = given.value("world_size", std::int64_t{1});
    options.before_pack = [this](std::int64_t sequences) { packs_.push_back(sequences); };
    if (const auto most = given.value("out_of_memory_from", std::int64_t{0}); most > 0) {
      options.before_pack = [most](std::int64_t sequences) {
        TORCH_CHECK_WITH(OutOfMemoryError, sequences < most,
                         "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
                         "capacity of 79.10 GiB of which 512.00 MiB is free. Including non-PyTorch "
                         "memory, this process has 78.50 GiB memory in use.");
      };
    }
    if (const auto which = given.value("out_of_memory_once", 0); which > 0) {
      options.before_pack = [left = which](std::int64_t) mutable {
        TORCH_CHECK_WITH(OutOfMemoryError, --left != 0,
                         "CUDA out of memory. Tried to allocate 2.00 GiB.");
      };
    }
    bool logits = false;
    for (const json& run : job_.at("runs"))
      logits = logits || (run.contains("logits") && run["logits"].is_string());
    if (logits)
      options.observe_logits = [this](std::size_t request, std::int64_t,
                                      std::span<const float> row) {
        observed_[request].insert(observed_[request].end(), row.begin(), row.end());
      };
    auto created = engine::Engine::create(options);
    if (!created) return {{"error", error_json(created.error())}};
    engine_ = std::move(created).value();
    json results = json::array();
    for (const json& run : job_.at("runs")) results.push_back(run_one(run));
    return {{"runs", results}};
  }

 private:
  static vision::ProcessorSettings processor(const json& job) {
    vision::ProcessorSettings settings;
    const json& given = job.at("options");
    settings.patch_size = given.value("patch_size", settings.patch_size);
    if (given.contains("anyres_folder"))
      return *vision::load_processor_settings(evalcar::RealFileSystem(),
                                              given["anyres_folder"].get<std::string>(),
                                              {.sizing = vision::Sizing::kAnyres,
                                               .min_pixels = std::nullopt,
                                               .max_pixels = std::nullopt,
                                               .patch_size = settings.patch_size});
    settings.image_mean = given.value("image_mean", settings.image_mean);
    settings.image_std = given.value("image_std", settings.image_std);
    return settings;
  }

  static json error_json(const evalcar::Error& error) {
    return {{"code", evalcar::error_code_name(error.code)}, {"message", error.message}};
  }

  json run_one(const json& run) {
    json result;
    if (run.contains("rename")) {
      const auto names = run["rename"].get<std::vector<std::string>>();
      std::filesystem::rename(names.at(0), names.at(1));
    }
    if (run.contains("folder")) {
      auto loaded = load(run["folder"].get<std::string>());
      if (!loaded) return {{"error", error_json(loaded.error())}};
      result["loaded"] = *loaded;
    }
    if (run.contains("prefetch")) result["prefetch"] = prefetch(run["prefetch"]);
    observed_.clear();
    std::vector<engine::Request> requests;
    for (const json& source : run.at("requests")) {
      requests.push_back(request_of(source));
      requests.back().stream = source.value("stream", std::uint64_t{requests.size()});
    }
    for (int repeat = 0; repeat < run.value("repeat", 1); ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      const Status status = generate(requests, run, result);
      result["packs"] = packs_;
      if (!status) return {{"error", error_json(status.error())}, {"order", result["order"]}};
      result["seconds"].push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    if (run.value("profile", false)) result["profile"] = profile(requests, run);
    if (run.contains("logits") && run["logits"].is_string()) write_logits(run["logits"]);
    result["peak_rss_bytes"] = peak_resident_bytes();
    if (run.value("unload", false)) engine_->unload();
    return result;
  }

  /// Of one run more.
  json profile(const std::vector<engine::Request>& requests, const json& run) {
    json ignored;
    const auto profile = evalcar::testing::profile_device(
        [&] { static_cast<void>(generate(requests, run, ignored)); });
    json kernels = json::array();
    for (const auto& time : profile.times) kernels.push_back({time.name, time.count, time.seconds});
    return {{"busy", profile.busy}, {"span", profile.span}, {"kernels", kernels}};
  }

  Result<json> load(const std::string& folder) {
    EVALCAR_ASSIGN_OR_RETURN(
        const auto plan,
        evalcar::checkpoint::make_plan(files_, folder, evalcar::checkpoint::WeightsKind::kRegular));
    EVALCAR_ASSIGN_OR_RETURN(const auto loaded,
                             engine_->load(files_, plan, folder, "auto", {}, {}));
    return json{{"weights_sha256", loaded.weights_sha256},
                {"architecture", loaded.architecture},
                {"dtype", loaded.dtype},
                {"tensors", loaded.tensors},
                {"bytes", loaded.bytes},
                {"attn_implementation", loaded.attn_implementation},
                {"warning", loaded.warning},
                {"vocab_size", loaded.vocab_size},
                {"image_token_id", loaded.image_token_id},
                {"prefetched", loaded.prefetched}};
  }

  std::string prefetch(const std::string& folder) {
    const auto plan =
        evalcar::checkpoint::make_plan(files_, folder, evalcar::checkpoint::WeightsKind::kRegular);
    if (!plan) return plan.error().message;
    const Status done = engine_->prefetch(files_, *plan, folder, "auto", {});
    return done ? "" : done.error().message;
  }

  Status generate(const std::vector<engine::Request>& requests, const json& run, json& result) {
    std::stop_source stop;
    const int cancel_after = run.value("cancel_after", 0);
    const int cancel_at_step = run.value("cancel_at_step", 0);
    const int out_of_memory_at_step = run.value("out_of_memory_at_step", 0);
    const std::int64_t behind_pictures =
        run.value("out_of_memory_behind_pictures", std::int64_t{0});
    std::atomic<int> steps = 0;
    std::size_t packs_with_pictures = 0;
    int answered = 0;
    result["order"] = json::array();
    result["answers"] = json::array();
    result["shrunk"] = json::array();
    result["narrowed"] = json::array();
    packs_.clear();
    result["encoded"] = result["reused"] = std::size_t{0};
    for (std::size_t i = 0; i < requests.size(); ++i) result["answers"].push_back(nullptr);
    engine::RunEvents events;
    events.answered = [&](std::size_t index, const Result<engine::Answer>& answer) {
      result["order"].push_back(index);
      if (!answer) {
        result["answers"][index] = {{"error", error_json(answer.error())}};
        return;
      }
      result["answers"][index] = {{"tokens", answer->tokens}, {"stopped", answer->stopped}};
      if (answer->ended) result["answers"][index]["ended"] = true;
      if (answer->draft_tokens > 0)
        result["answers"][index]["drafted"] = {answer->draft_tokens, answer->draft_tokens_taken};
      for (const engine::Score& score : answer->scores)
        result["answers"][index]["scores"].push_back(
            {score.log_likelihood, score.tokens, score.is_greedy});
      if (++answered == cancel_after) stop.request_stop();
    };
    events.shrunk = [&](std::int64_t most, const std::string&) {
      result["shrunk"].push_back(most);
    };
    events.narrowed = [&](const std::string& reason) { result["narrowed"].push_back(reason); };
    events.advanced = [&] {
      const int step = ++steps;
      if (step == cancel_at_step) stop.request_stop();
      // Without it, threads that prepare pictures come here, too.
      const bool fits = behind_pictures == 0 || packs_.size() != packs_with_pictures ||
                        packs_.empty() || packs_.back() < behind_pictures;
      TORCH_CHECK_WITH(OutOfMemoryError, step != out_of_memory_at_step && fits,
                       "CUDA out of memory. Tried to allocate 2.00 GiB.");
    };
    const auto last_tokens = run.value("ends", std::vector<std::int32_t>{});
    if (!last_tokens.empty())
      events.ends = [last_tokens](std::size_t, std::span<const std::int32_t> tokens) {
        return tokens.size() >= last_tokens.size() &&
               std::ranges::equal(tokens.last(last_tokens.size()), last_tokens);
      };
    events.encoded = [&](std::size_t pictures, bool reused) {
      json& count = result[reused ? "reused" : "encoded"];
      count = count.get<std::size_t>() + pictures;
      packs_with_pictures = packs_.size();
    };
    return engine_->generate(requests, *images_, processor_, events, stop.get_token());
  }

  void write_logits(const std::string& path) {
    std::ofstream file(path, std::ios::binary);
    for (const auto& [request, rows] : observed_)
      file.write(reinterpret_cast<const char*>(rows.data()),
                 static_cast<std::streamsize>(rows.size() * sizeof(float)));
  }

  const json& job_;
  vision::ProcessorSettings processor_;
  std::unique_ptr<engine::ImageSource> images_;
  evalcar::RealFileSystem files_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<std::int64_t> packs_;                     // sequences of each that was begun
  std::map<std::size_t, std::vector<float>> observed_;  // request → its steps' scores
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: engine_probe JOB.json\n";
    return 2;
  }
  std::ifstream file(argv[1]);
  const json job = json::parse(file);
  json documents = json::array();
  for (const json& session : job.at("sessions"))
    documents.push_back(Probe(session, job.at("images")).run());
  std::cout << documents.dump() << "\n";
  return 0;
}
