#include "agent/run/trainer_state.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "store/checkpoint/top_numbers.h"

namespace evalcar::run {
namespace {

constexpr std::uint64_t kMaxConfig = std::uint64_t{1} << 20U;
constexpr double kMostEpochs = 1e15;

/// 0 for what is no count of steps.
std::int64_t steps(const checkpoint::TopNumbers& numbers, std::string_view key) {
  return checkpoint::whole_number(numbers, key).value_or(0);
}

}  // namespace

Result<TrainerState> read_trainer_state(const FileSystem& files, const std::string& folder) {
  EVALCAR_ASSIGN_OR_RETURN(
      const checkpoint::TopNumbers numbers,
      checkpoint::top_level_numbers(files, join_path(folder, "trainer_state.json"),
                                    {"global_step", "max_steps", "save_steps", "epoch"},
                                    checkpoint::kMaxTrainerStateBytes));
  TrainerState state;
  state.global_step = steps(numbers, "global_step");
  state.max_steps = steps(numbers, "max_steps");
  state.save_steps = steps(numbers, "save_steps");
  const auto epoch = numbers.find("epoch");
  if (epoch != numbers.end() && epoch->second > 0 && epoch->second < kMostEpochs) {
    state.epoch = epoch->second;
  }
  return state;
}

std::int64_t save_steps_of_lmms_engine(const FileSystem& files, const std::string& output_dir) {
  const auto text = read_file(files, join_path(output_dir, "config.yaml"), kMaxConfig);
  if (!text.has_value()) return 0;
  // One plain line of what yaml.dump writes.
  constexpr std::string_view kKey = "save_steps: ";
  std::int64_t found = 0;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    std::string_view line = std::string_view(*text).substr(begin, end - begin);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    begin = end + 1;
    if (!line.starts_with(kKey)) continue;
    line.remove_prefix(kKey.size());
    std::int64_t number = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
    if (parsed.ec == std::errc{} && parsed.ptr == line.data() + line.size() && number > 0) {
      found = number;
    }
  }
  return found;
}

}  // namespace evalcar::run
