// What only the evaluator's program can tell: it is run, and asked.
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "agent/cli/doctor.h"
#include "agent/run/evaluation_settings.h"
#include "agent/supervise/child_process.h"
#include "agent/supervise/data_check.h"
#include "agent/supervise/find_evaluator.h"
#include "evaluator/tasks/task_file.h"

namespace evalcar::cli {
namespace {

using Level = Finding::Level;
using Json = nlohmann::json;

constexpr std::chrono::seconds kLimit{60};  ///< a driver that wakes a GPU may take long
constexpr std::size_t kMostOutput = std::size_t{1} << 20U;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
constexpr std::uint64_t kLittleGpu = 16 * kGiB;
constexpr std::int64_t kLeastCapability = 75;

/// What a program prints; an error if it does not end with 0.
Result<std::string> output_of(const std::vector<std::string>& command, const Clock& clock) {
  EVALCAR_ASSIGN_OR_RETURN(auto child, supervise::ChildProcess::spawn(command, -1));
  std::string text;
  std::optional<int> status;
  bool ended = false;
  const MonotonicTime start = clock.monotonic_now();
  while (!status.has_value() && clock.monotonic_now() - start < kLimit) {
    pollfd waiting{child.output(), POLLIN, 0};
    // Its output ends well before libtorch is unloaded; from then on poll() would return at once.
    (void)::poll(ended ? nullptr : &waiting, ended ? 0 : 1, 10);
    status = child.try_wait();
    if (!ended) text += supervise::read_available(child.output(), 65536, ended);
    if (text.size() > kMostOutput) break;
  }
  if (status == 0 && !text.empty()) return text;
  return make_error(ErrorCode::kUnavailable,
                    command[0] + " " + command[1] + ": " +
                        (status ? supervise::describe_wait_status(*status) : "no answer") + " " +
                        text.substr(0, 500));
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

/// The line {"devices": …}; warnings of libraries may stand before it.
Json find_report(const std::string& output) {
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    if (output.compare(at, 11, "{\"devices\":") == 0) {
      const Json document = Json::parse(output.substr(at, end - at), nullptr, false);
      if (document.is_object() && document["devices"].is_object()) return document["devices"];
    }
    at = end + 1;
  }
  return nullptr;
}

GpuFacts facts_of(const Json& gpu) {
  GpuFacts facts;
  facts.device = text_of(gpu, "device");
  facts.name = text_of(gpu, "name");
  facts.capability = static_cast<std::int64_t>(number_of(gpu, "capability"));
  facts.memory_bytes = number_of(gpu, "memory_bytes");
  const auto use = gpu.find("use");
  if (use == gpu.end() || !use->is_object()) return facts;
  const auto lost = use->find("lost");
  facts.lost = lost != use->end() && lost->is_boolean() && lost->get<bool>();
  if (use->contains("free_bytes")) facts.free_bytes = number_of(*use, "free_bytes");
  const auto users = use->find("processes");
  if (users == use->end() || !users->is_array()) return facts;
  for (const Json& pid : *users) {
    if (pid.is_number_integer()) facts.users.push_back(pid.get<std::int64_t>());
  }
  return facts;
}

Finding judge_no_gpu(const std::string& device, const std::string& reason) {
  const std::string why = reason.empty() ? "none is seen" : reason;
  if (device.starts_with("cuda")) {
    return {"GPU", Level::kProblem, why + ", and evaluate.device is \"" + device + "\"",
            "check `nvidia-smi`, CUDA_VISIBLE_DEVICES and, in a container, --gpus; or set "
            "evaluate.device = \"cpu\""};
  }
  if (device == "cpu") return {"GPU", Level::kOk, why + "; evaluate.device is \"cpu\""};
  return {"GPU", Level::kWarning, why + ": device \"auto\" means the CPU, which is slow",
          "check `nvidia-smi` and CUDA_VISIBLE_DEVICES if there should be one"};
}

/// Everything of the report.
Findings judge_devices(const Json& report, const config::EvaluateSettings& settings) {
  Findings findings = {{"libtorch", Level::kOk, "torch " + text_of(report, "torch")}};
  const std::string nccl = text_of(report, "nccl");
  findings.push_back({"NCCL", Level::kOk, nccl.empty() ? "none; one GPU needs none" : nccl});
  const std::string driver = text_of(report, "driver");
  findings.push_back({"driver", Level::kOk,
                      driver.empty()
                          ? "NVIDIA's management library is not here: whether others use "
                            "a GPU cannot be told"
                          : "NVIDIA " + driver});
  if (const std::string mps = text_of(report, "mps"); !mps.empty() && !settings.share_gpu) {
    findings.push_back({"MPS", Level::kProblem,
                        mps + ": an MPS daemon serves the GPUs; a fault of ours would end the "
                              "trainer",
                        "stop it, set CUDA_MPS_PIPE_DIRECTORY to an empty folder, or set "
                        "evaluate.share_gpu = true"});
  }
  const auto gpus = report.find("gpus");
  if (gpus == report.end() || !gpus->is_array() || gpus->empty()) {
    findings.push_back(judge_no_gpu(settings.device, text_of(report, "no_gpu")));
    return findings;
  }
  std::string others;
  bool any = false;
  for (const Json& gpu : *gpus) {
    if (!gpu.is_object()) continue;
    const GpuFacts facts = facts_of(gpu);
    if (!runs_on(settings.device, settings.num_gpus, facts.device)) {
      others += (others.empty() ? "" : ", ") + facts.device + " (" + facts.name + ")";
      continue;
    }
    any = true;
    for (Finding& finding : judge_gpu(facts, settings.share_gpu)) {
      findings.push_back(std::move(finding));
    }
  }
  if (!any && settings.device != "cpu") {
    findings.push_back(
        {"GPU", Level::kProblem,
         "evaluate.device is \"" + settings.device + "\", and only these are seen: " + others,
         "name one of them in evaluate.device, or check CUDA_VISIBLE_DEVICES"});
  } else if (!others.empty()) {
    findings.push_back({"other GPUs", Level::kOk,
                        others + ": not used (evaluate.device is \"" + settings.device + "\")"});
  }
  return findings;
}

}  // namespace

bool runs_on(const std::string& device, std::int64_t num_gpus, const std::string& gpu) {
  constexpr std::string_view kCuda = "cuda:";
  const auto number_of_device = [&kCuda](const std::string& name) -> std::optional<std::int64_t> {
    if (name == "auto" || name == "cuda") return 0;
    std::int64_t number = 0;
    const char* const end = name.data() + name.size();
    if (!name.starts_with(kCuda)) return std::nullopt;
    const auto [rest, error] = std::from_chars(name.data() + kCuda.size(), end, number);
    return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
  };
  const auto first = number_of_device(device);
  const auto asked = number_of_device(gpu);
  if (!first.has_value() || !asked.has_value()) return false;
  return *asked >= *first && *asked < *first + std::max<std::int64_t>(1, num_gpus);
}

Findings judge_gpu(const GpuFacts& gpu, bool share_gpu) {
  const std::string what = gpu.device + " (" + gpu.name + ")";
  const std::string another = "name another one in evaluate.device or CUDA_VISIBLE_DEVICES";
  if (gpu.lost) {
    return {{"GPU", Level::kProblem, what + ": the driver has lost it",
             "look at dmesg for Xid lines and reset the machine, or " + another}};
  }
  Findings findings;
  std::string text = what + ": compute capability " + std::to_string(gpu.capability / 10) + "." +
                     std::to_string(gpu.capability % 10) + ", " +
                     config::format_bytes(gpu.memory_bytes);
  if (gpu.free_bytes.has_value()) text += ", " + config::format_bytes(*gpu.free_bytes) + " free";
  if (gpu.capability < kLeastCapability) {
    findings.push_back({"GPU", Level::kProblem, text + "; 7.5 or newer is needed", another});
  } else {
    findings.push_back({"GPU", Level::kOk, text});
  }
  if (gpu.memory_bytes < kLittleGpu) {
    findings.push_back({"GPU memory", Level::kWarning, what + ": less than 16 GB",
                        "a model of some billion parameters may not fit: lower "
                        "evaluate.max_pixels and evaluate.batch_size"});
  }
  if (!gpu.users.empty()) {
    std::string users;
    for (const std::int64_t pid : gpu.users) {
      users += (users.empty() ? "" : ", ") + std::to_string(pid);
    }
    findings.push_back({"GPU use", Level::kWarning,
                        what + ": processes compute on it: " + users +
                            (share_gpu ? "; it is shared (evaluate.share_gpu)"
                                       : "; evaluations wait until it is free"),
                        share_gpu ? "" : another + ", or set evaluate.share_gpu = true"});
  }
  return findings;
}

Findings check_evaluator(const FileSystem& files, const Clock& clock,
                         const config::Settings& settings) {
  const std::string mend =
      "install it beside evalcar (`cmake --install`), or name it in EVALCAR_EVALUATOR";
  const auto program = supervise::find_evaluator(files);
  if (!program.has_value()) {
    return {{"evaluator", Level::kProblem, program.error().message, mend}};
  }
  auto version = output_of({*program, "--version"}, clock);
  if (!version.has_value()) {
    return {{"evaluator", Level::kProblem, version.error().message,
             "run that command: a library that is missing is named there (ldd)"}};
  }
  version->resize(std::min(version->size(), version->find('\n')));
  Findings findings = {{"evaluator", Level::kOk, *version + " (" + *program + ")"}};
  const auto output = output_of({*program, "devices"}, clock);
  const Json report = output.has_value() ? find_report(*output) : Json();
  if (!report.is_object()) {
    findings.push_back(
        {"libtorch", Level::kProblem,
         output.has_value() ? *program + " devices: no report" : output.error().message,
         "install both programs from one build"});
    return findings;
  }
  for (Finding& finding : judge_devices(report, settings.evaluate)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings check_tasks(const FileSystem& files, const Clock& clock,
                     const config::Settings& settings) {
  const config::EvaluateSettings& evaluate = settings.evaluate;
  Findings findings;
  bool all_known = true;
  for (const std::string& name : evaluate.tasks) {
    const auto task = tasks::find_task(files, evaluate.tasks_dir, name);
    all_known &= task.has_value();
    findings.push_back({"task", task.has_value() ? Level::kOk : Level::kProblem,
                        task.has_value() ? name : task.error().message,
                        task.has_value() ? "" : "`evalcar tasks` lists them"});
  }
  if (evaluate.tasks.empty() || !all_known) return findings;
  if (evaluate.data_dir.empty()) {
    findings.push_back({"data", Level::kWarning, "evaluate.data_dir is not set: not looked for",
                        "`evalcar tasks` prints the commands that fetch the data sets"});
    return findings;
  }
  const auto program = supervise::find_evaluator(files);
  if (!program.has_value()) return findings;  // said already
  auto check = supervise::DataCheck::start(run::check_command(*program, evaluate), clock, kLimit);
  if (!check.has_value()) return findings;
  std::optional<Result<supervise::DataReport>> report;
  while (!(report = check->poll()).has_value()) (void)::poll(nullptr, 0, 10);
  if (!report->has_value()) {
    findings.push_back({"data", Level::kProblem, report->error().message,
                        "does the storage of evaluate.data_dir answer?"});
    return findings;
  }
  for (const auto& [task, data] : **report) {
    const bool ok = data.error.empty();
    findings.push_back({"data", ok ? Level::kOk : Level::kProblem,
                        ok ? task + ": can be read" : task + ": " + data.error,
                        ok ? "" : "fetch it into evaluate.data_dir: `evalcar tasks` prints how"});
  }
  return findings;
}

}  // namespace evalcar::cli
