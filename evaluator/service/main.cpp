// evalcar-evaluator: the child that holds the device. It is started by `evalcar`, which gives it
// one end of a socketpair; `score` and `check` need neither a model nor a device.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "evaluator/engine/engine.h"
#include "evaluator/service/devices.h"
#include "evaluator/service/preparation_cache.h"
#include "evaluator/service/rank.h"
#include "evaluator/service/session.h"
#include "evaluator/tasks/data_check.h"
#include "evaluator/tasks/score_command.h"
#include "evaluator/vision/picture_cache.h"
#include "evaluator/vision/pixel_makers.h"
#include "evaluator/vision/sample_pictures.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/open_files.h"

namespace {

constexpr int kUsage = 2;
constexpr std::chrono::seconds kReadingEnds{1};

struct ServeOptions {
  int fd = -1;
  evalcar::engine::EngineOptions engine;
  evalcar::vision::PictureCacheOptions pictures;
  evalcar::vision::SamplePicturesOptions shown;
  evalcar::service::PreparationCacheOptions tasks;
};

/// Said to the agent in place of a hello, and to whoever reads the log. `kind`: where the error
/// does not tell a more exact one.
int refuse(int fd, std::string_view otherwise, const evalcar::Error& error) {
  std::cerr << "evalcar-evaluator: " << error.message << '\n';
  std::string kind = evalcar::service::job_error_kind(error);
  if (kind == evalcar::error_code_name(error.code)) kind = otherwise;
  const std::string line =
      evalcar::protocol::encode(evalcar::protocol::JobError{.id = "",
                                                            .kind = kind,
                                                            .stage = "starting",
                                                            .message = error.message,
                                                            .retryable = error.retryable,
                                                            .fatal = true}) +
      "\n";
  (void)::send(fd, line.data(), line.size(),
               MSG_NOSIGNAL);  // far below what a socket takes at once
  return error.code == evalcar::ErrorCode::kInvalidArgument ? kUsage : 1;
}

int serve(const ServeOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing outlives the agent, not even when it is killed
  evalcar::RealFileSystem files;
  const evalcar::SystemClock clock;
  const auto rank = evalcar::service::read_rank([](const char* name) { return std::getenv(name); });
  if (!rank.has_value()) {
    return refuse(options.fd, evalcar::error_code_name(rank.error().code), rank.error());
  }
  evalcar::engine::EngineOptions engine_options = options.engine;
  engine_options.device = evalcar::service::device_of_rank(options.engine.device, *rank);
  auto device = evalcar::engine::describe_device(engine_options.device);
  if (!device.has_value()) return refuse(options.fd, evalcar::protocol::kNoDevice, device.error());
  const auto free =
      evalcar::service::check_device_is_free(*device, engine_options.share_gpu, std::cerr);
  if (!free.has_value()) return refuse(options.fd, evalcar::protocol::kDeviceBusy, free.error());
  auto engine = evalcar::engine::Engine::create(engine_options);
  if (!engine.has_value()) {
    return refuse(options.fd, evalcar::error_code_name(engine.error().code), engine.error());
  }
  const std::string made_by = evalcar::vision::pixel_makers(files);
  std::optional<evalcar::vision::PictureCache> pictures;
  if (!options.pictures.folder.empty()) {
    auto cache = options.pictures;
    cache.made_by = made_by;
    pictures.emplace(files, clock, std::move(cache));
  }
  std::optional<evalcar::service::PreparationCache> tasks;
  if (!options.tasks.folder.empty()) {
    auto cache = options.tasks;
    cache.made_by = made_by;
    tasks.emplace(files, clock, std::move(cache));
  }
  std::optional<evalcar::vision::SamplePictures> shown;
  if (!options.shown.folder.empty()) shown.emplace(files, clock, options.shown);
  evalcar::service::Session session(options.fd, std::move(*engine), std::move(*device), files,
                                    clock,
                                    {.pictures = {.prepared = pictures ? &*pictures : nullptr,
                                                  .shown = shown ? &*shown : nullptr},
                                     .tasks = tasks ? &*tasks : nullptr});
  const int code = session.run();
  // A thread that hangs in a read still uses all this: the kernel takes it away under it.
  if (!session.end_reading(kReadingEnds)) std::_Exit(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  evalcar::raise_open_files_limit();
  CLI::App app{"The evaluator process of evalcar; started by `evalcar`."};
  app.set_version_flag("--version", std::string("evalcar-evaluator ") + EVALCAR_VERSION);
  ServeOptions serve_options;
  app.add_option("--fd", serve_options.fd, "Connected socket to the agent");
  app.add_option("--device", serve_options.engine.device, "auto, cpu, cuda or cuda:N");
  app.add_option("--dtype", serve_options.engine.dtype, "auto, float32 or bfloat16");
  app.add_option("--attn-implementation", serve_options.engine.attn_implementation,
                 "flash_attention_2, sdpa or eager");
  app.add_option("--batch-size", serve_options.engine.batch_size,
                 "At most so many sequences at once; 0 = by memory");
  app.add_option("--gpu-memory-utilization", serve_options.engine.gpu_memory_utilization,
                 "Share of the device's memory");
  app.add_flag("--share-gpu", serve_options.engine.share_gpu,
               "Also take a GPU that other processes use, or one behind MPS");
  app.add_option("--picture-cache", serve_options.pictures.folder,
                 "Folder for prepared pictures; empty = none");
  app.add_option("--picture-cache-bytes", serve_options.pictures.bytes, "What it may hold");
  app.add_option("--picture-cache-keep-free", serve_options.pictures.keep_free,
                 "Bytes of its disk that it leaves to others");
  app.add_option("--preparation-cache", serve_options.tasks.folder,
                 "Folder for prepared tasks; empty = none");
  app.add_option("--preparation-cache-bytes", serve_options.tasks.bytes, "What it may hold");
  app.add_option("--preparation-cache-keep-free", serve_options.tasks.keep_free,
                 "Bytes of its disk that it leaves to others");
  app.add_option("--encoded-pictures-bytes", serve_options.engine.encoded_pictures_bytes,
                 "Memory for what a vision tower that does not change made of pictures; 0 = none");
  app.add_option("--sample-pictures", serve_options.shown.folder,
                 "Folder for small pictures of samples, for people; empty = none");
  app.add_option("--sample-pictures-bytes", serve_options.shown.bytes, "What it may hold");
  app.add_option("--sample-pictures-keep-free", serve_options.shown.keep_free,
                 "Bytes of its disk that it leaves to others");
  app.add_option("--threads", serve_options.engine.threads, "CPU threads; 0 = all");

  evalcar::tasks::ScoreCommandOptions score_options;
  CLI::App* const score =
      app.add_subcommand("score", "Score logged samples again, without a model");
  score->add_option("--task", score_options.task, "Task name")->required();
  score->add_option("--samples", score_options.samples, "Samples file (JSONL)")->required();
  score->add_option("--data", score_options.data_dir, "Folder of the data sets");
  score->add_option("--tasks-dir", score_options.tasks_dir, "Folder of your own task files");
  score->add_option("--compat", score_options.compat, "lmms-eval or strict");
  score->add_flag("--json", score_options.json, "One JSON document");
  evalcar::tasks::CheckCommandOptions check_options;
  CLI::App* const check = app.add_subcommand("check", "Tell whether the tasks' data are there");
  check->add_option("--tasks", check_options.tasks, "Task names")->required()->delimiter(',');
  check->add_option("--data", check_options.data_dir, "Folder of the data sets");
  check->add_option("--tasks-dir", check_options.tasks_dir, "Folder of your own task files");
  CLI::App* const devices =
      app.add_subcommand("devices", "Tell what this build can run on, as one line of JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (score->parsed()) {
    evalcar::RealFileSystem files;
    return evalcar::tasks::run_score(score_options, files, std::cout, std::cerr);
  }
  if (check->parsed()) {
    const evalcar::RealFileSystem files;
    return evalcar::tasks::run_check(check_options, files, std::cout);
  }
  if (devices->parsed()) return evalcar::service::run_devices(std::cout);
  if (serve_options.fd < 0) {
    std::cerr << "evalcar-evaluator: --fd is missing: this program is started by evalcar\n";
    return kUsage;
  }
  return serve(serve_options);
}
