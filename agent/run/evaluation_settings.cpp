#include "agent/run/evaluation_settings.h"

#include "store/state/location.h"

namespace evalcar::run {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

}  // namespace

protocol::EvaluationSettings evaluation_settings(const config::EvaluateSettings& evaluate) {
  protocol::EvaluationSettings settings;
  settings.tasks = evaluate.tasks;
  settings.data_dir = evaluate.data_dir;
  settings.tasks_dir = evaluate.tasks_dir;
  settings.limit = evaluate.limit;
  settings.offset = evaluate.offset;
  settings.batch_size = evaluate.batch_size;
  settings.max_new_tokens = evaluate.max_new_tokens;
  settings.max_pixels = evaluate.max_pixels;
  settings.min_pixels = evaluate.min_pixels;
  settings.max_pixels_set = evaluate.max_pixels_set ? 1 : 0;
  settings.min_pixels_set = evaluate.min_pixels_set ? 1 : 0;
  settings.attn_implementation = evaluate.attn_implementation;
  settings.compat = evaluate.compat;
  settings.gen_kwargs = evaluate.gen_kwargs;
  settings.num_fewshot = evaluate.num_fewshot;
  settings.seed = evaluate.seed;
  settings.bootstrap_iters = evaluate.bootstrap_iters;
  return settings;
}

std::vector<std::string> evaluator_command(const std::string& program,
                                           const config::EvaluateSettings& evaluate,
                                           const config::LimitSettings& limits) {
  std::vector<std::string> command = {program, "--device", evaluate.device,
                                      "--gpu-memory-utilization",
                                      std::to_string(evaluate.gpu_memory_utilization)};
  if (evaluate.share_gpu) command.emplace_back("--share-gpu");
  const auto add_cache = [&](const std::string& option, const std::string& folder,
                             std::uint64_t bytes, std::uint64_t keep_free) {
    if (bytes == 0) return;
    const auto free = std::to_string(limits.min_free.value_or(keep_free));
    for (const std::string& word :
         {option, folder, option + "-bytes", std::to_string(bytes), option + "-keep-free", free})
      command.push_back(word);
  };
  add_cache("--picture-cache", join_path(state::state_directory(), "pictures"),
            limits.picture_cache, 16 * kGiB);
  add_cache("--preparation-cache", join_path(state::state_directory(), "prepared"),
            limits.preparation_cache, kGiB);
  add_cache("--sample-pictures", state::sample_pictures_directory(), limits.sample_pictures, kGiB);
  if (limits.encoded_pictures > 0) {
    command.emplace_back("--encoded-pictures-bytes");
    command.push_back(std::to_string(limits.encoded_pictures));
  }
  return command;
}

std::vector<std::string> check_command(const std::string& program,
                                       const config::EvaluateSettings& evaluate) {
  std::string tasks;
  for (const std::string& task : evaluate.tasks) {
    tasks.append(tasks.empty() ? "" : ",").append(task);
  }
  return {program,  "check",           "--tasks",     tasks,
          "--data", evaluate.data_dir, "--tasks-dir", evaluate.tasks_dir};
}

std::string identity_of_program(const FileSystem& files, const std::string& program) {
  if (program.empty()) return "";
  const auto info = files.info_followed(program);
  if (!info.has_value()) return "";
  return "evaluator " + std::to_string(info->inode) + "-" + std::to_string(info->size_bytes) + "-" +
         std::to_string(info->mtime_ns);
}

supervise::SupervisorOptions supervisor_options(const config::LimitSettings& limits) {
  supervise::SupervisorOptions options;
  options.stage_timeouts = limits.stage_timeouts;
  return options;
}

}  // namespace evalcar::run
