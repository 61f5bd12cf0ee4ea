// What kind of checkpoint a folder holds, and whether it is complete: judged from its own structure
// alone.
//
// Nothing here trusts a marker that a trainer might not write, or a folder's name where its content
// tells more. All functions only read, in bounded memory, and hold no file open when they return.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

enum class Layout {
  kHuggingFace,
  kLmmsEngineFsdp2,
  kDcp,             ///< torch.distributed.checkpoint: .metadata, *.distcp
  kDcpSafetensors,  ///< the same with safetensors shards (HuggingFaceStorageWriter)
  kLoraAdapter,
  kDeepspeedZero,
  kAveraged,  ///< several checkpoints: averaged.h
};
/// "hugging_face", "lmms_engine_fsdp2", "dcp", "dcp_safetensors", "lora_adapter", "deepspeed_zero",
/// "averaged": as in the JSON of `inspect`.
std::string_view layout_name(Layout layout);

/// kAverage: of several checkpoints, as averaged.h lays them out; no trainer writes it.
enum class WeightsKind { kRegular, kEma, kAverage };
/// "regular", "ema", "average".
std::string_view weights_kind_name(WeightsKind kind);
std::optional<WeightsKind> weights_kind_from_name(std::string_view name);

enum class Completeness {
  kAbsent,      ///< this kind of weights is not in the folder
  kPending,     ///< EMA folder there but empty: not started, or not enabled yet (design: "Layouts")
  kIncomplete,  ///< being written, or torn: `reason` names the first file that is short or missing
  kComplete,
};

/// One kind of weights in one folder, as the disk shows it now.
struct KindState {
  WeightsKind kind = WeightsKind::kRegular;
  Completeness completeness = Completeness::kAbsent;
  std::string reason;    ///< in words, for everything but kComplete
  bool damaged = false;  ///< of kIncomplete: what is there breaks its format, waiting cannot help
  bool unsupported = false;  ///< of damaged: it breaks nothing, but is of a form that is not read
  int world_size = 0;        ///< of the shards; 0 where the layout has none
  std::vector<std::string>
      files;  ///< relative to the checkpoint; every file an evaluation of this kind reads: weights,
              ///< config, tokenizer, processor. What a lease has to link. Empty unless kComplete
};

struct LayoutReport {
  Layout layout = Layout::kHuggingFace;
  std::optional<std::int64_t> step;  ///< from trainer_state.json, else from the folder's name
  std::vector<KindState> kinds;      ///< regular first; ema where the layout has a place for it
  /// lmms-engine: all W dataloader_state files are whole, so an empty EMA folder means that EMA has
  /// not started.
  bool writer_done = false;
};

/// Where a trainer keeps its shards, and what stands in for what a checkpoint lacks.
struct LayoutOptions {
  std::string shard_folder = "pytorch_model_fsdp_0";
  std::string ema_shard_folder = "pytorch_ema_model_fsdp_0";
  /// Only what lies in those two folders counts, whatever other weights the checkpoint holds: one
  /// of them was asked for by its name.
  bool shard_folders_only = false;
  /// A checkpoint without config.json counts as complete (its weights alone are wanted).
  bool weights_only = false;
  /// Folder of the model that training started from (evaluate.base_model, --model_name_or_class),
  /// or empty: has the configuration and tokenizer of a checkpoint that holds weights alone.
  std::string base_model;
};

/// Recognises the layout of `dir` and judges each kind. kNotFound: no such folder. kUnavailable: it
/// holds nothing yet but what trainers write before weights. kUnsupported: nothing that looks like
/// a checkpoint this program reads; the message lists what was looked for, and `retryable` is true:
/// the folder may be filled later all the same.
Result<LayoutReport> inspect_layout(const FileSystem& files, const std::string& dir,
                                    const LayoutOptions& options = {});

/// N of "checkpoint-N" where N is a canonical integer (no sign, no leading zero, fits int64); by
/// `pattern` with one
/// "{step}". Absent for anything else ("checkpoint-0500", "checkpoint-5e2",
/// "checkpoint-500-merged").
std::optional<std::int64_t> step_of_name(std::string_view folder_name,
                                         std::string_view pattern = "checkpoint-{step}");

}  // namespace evalcar::checkpoint
