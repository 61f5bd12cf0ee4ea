// What the Hugging Face Trainer says of itself in a checkpoint's trainer_state.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "store/base/file_system.h"

namespace evalcar::run {

struct TrainerState {
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;   ///< of the whole training; 0: not told
  std::int64_t save_steps = 0;  ///< 0: not told
  std::optional<double> epoch;  ///< how many epochs were done, e.g. 1.98

  bool is_last() const { return max_steps > 0 && global_step >= max_steps; }
};

/// Reads `<folder>/trainer_state.json`. The log of the whole run in it is passed over, not kept.
/// Errors as checkpoint::top_level_numbers: kCorruption where it stays unreadable while nobody
/// writes it anew.
Result<TrainerState> read_trainer_state(const FileSystem& files, const std::string& folder);

/// trainer_args.save_steps of the configuration that lmms-engine leaves in the output directory
/// (config.yaml); 0: there is none.
std::int64_t save_steps_of_lmms_engine(const FileSystem& files, const std::string& output_dir);

}  // namespace evalcar::run
