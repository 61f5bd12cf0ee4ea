// What the agent and the evaluator say to each other: one JSON object a line over a socketpair.
//
//   agent      hello → load → (answered …) evaluate → (prefetch | cancel)? → … → bye
//   evaluator  hello → progress … loaded → prepared → (sample | progress | interim) … (scored …)
//              result | error
//
// The agent never trusts the other end: every field is checked, a line is at most kMaxLineBytes
// long, and whatever does not parse is an event of the job (Error kCorruption), not of the agent.
// Text fields are UTF-8; the encoder replaces invalid bytes. Numbers that are not finite are never
// sent: a metric that could not be computed has `missing` instead.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/base/result.h"

namespace evalcar::protocol {

/// 2: Progress carries `tick`. 3: `prepared`; answers, lines and results carry a fingerprint.
/// 4: `prefetch`.
inline constexpr int kProtocolVersion = 4;
inline constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20U;

/// First message of both sides. The evaluator fills in what it runs on.
struct Hello {
  int protocol = kProtocolVersion;
  std::string version;      ///< of the program
  std::string device;       ///< "cpu", "cuda:0": what `auto` became
  std::string device_name;  ///< the GPU's or CPU's name
  std::string torch_version;
  std::string warning;  ///< e.g. "no GPU seen, running on the CPU"
  bool operator==(const Hello&) const = default;
};

/// lmms-eval's words for a value of attn_implementation that its wrappers do not take; "" is None.
inline constexpr std::string_view kAttentionRule =
    "attn_implementation must be one of [None, 'flash_attention_2', 'sdpa', 'eager']";

/// Effective settings of one evaluation: the prompt, limits, generation and data that a number
/// depends on.
struct EvaluationSettings {
  std::vector<std::string> tasks;
  std::string data_dir;
  std::string tasks_dir;        ///< the user's task files; may be empty
  std::optional<double> limit;  ///< a count (>= 1) or a fraction (0..1) of each task; absent = all
  std::int64_t offset = 0;      ///< first document
  std::int64_t batch_size = 0;  ///< 0 = auto
  std::optional<std::int64_t> max_new_tokens;  ///< overrides the tasks'
  std::int64_t max_pixels = 1605632;
  std::int64_t min_pixels = 200704;
  /// 1: somebody set it, and to just this default; families whose wrapper leaves the default
  /// without effect take it then. 0 with any other value, which is set by being another.
  std::int64_t max_pixels_set = 0;
  std::int64_t min_pixels_set = 0;
  std::string attn_implementation;   ///< "" = the best available
  std::string compat = "lmms-eval";  ///< "lmms-eval" | "strict"
  std::string gen_kwargs;            ///< "k=v,k=v", over the tasks'
  std::optional<std::int64_t> num_fewshot;
  std::int64_t seed = 0;  ///< see fewshot_seed_of()
  std::int64_t bootstrap_iters = 100000;
  std::int64_t average_last = 0;  ///< of kind "average": over how many checkpoints; 0 = not one
  /// 1: somebody asked for exactly this (HTTP), besides what is configured. The evaluator is not
  /// told; rows and numbers of it are never those of the configured series.
  std::int64_t requested = 0;
  bool operator==(const EvaluationSettings&) const = default;
};

/// The seed of few-shot examples (and of numpy and torch, with which nothing here draws):
/// lmms-eval's
/// `--seed` is 0,1234,1234,1234 unless it is given, and one number stands for all four.
inline std::int64_t fewshot_seed_of(std::int64_t seed) { return seed == 0 ? 1234 : seed; }

/// Make these weights resident. `dir` looks like a checkpoint folder (usually the lease of one).
struct Load {
  std::string id;  ///< of the job; repeated in every answer to it
  std::string dir;
  std::string weights;         ///< "regular" | "ema" | "average"
  std::string dtype = "auto";  ///< "auto" | "float32" | "bfloat16"
  std::string
      base_model;  ///< folder with config and tokenizer where the checkpoint has none; may be empty
  /// What the weights are for. If the data of none of its tasks can be opened, nothing is loaded:
  /// the answer is an error of kind kData. Absent: nothing is asked of the data.
  std::optional<EvaluationSettings> settings;
  bool operator==(const Load&) const = default;
};

/// These weights will probably be asked for next: read them now, beside what runs. A hint, without
/// an answer: whatever becomes of it, the `load` that follows gives what it would have given. A
/// newer one takes an older one's place. The fields are those of that `load`; the folder must be
/// the same one.
struct Prefetch {
  std::string dir;
  std::string weights;
  std::string dtype = "auto";
  std::string base_model;
  bool operator==(const Prefetch&) const = default;
};

/// The weights are resident, every expected tensor exactly once.
struct Loaded {
  std::string id;
  std::string weights_sha256;
  std::string architecture;  ///< e.g. "qwen2_5_vl"
  std::string dtype;         ///< what the device holds
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  ///< as stored
  double seconds = 0;
  bool prefetched = false;  ///< they were read ahead: `seconds` is what was left to do
  bool operator==(const Loaded&) const = default;
};

/// An answer that is already known from an attempt that was interrupted: the evaluator
/// takes it as it is and tells no other, if its task still has this fingerprint.
struct Answered {
  std::string id;
  std::string task;
  std::int64_t doc_id = 0;
  std::string text;
  std::int64_t output_tokens = 0;
  std::string fingerprint;           ///< of the task when it was generated
  std::optional<bool> cut_off = {};  ///< as in Sample; absent: an older evalcar did not note it
  bool operator==(const Answered&) const = default;
};

/// Start; all `answered` messages of this job come before it.
struct Evaluate {
  std::string id;
  EvaluationSettings settings;
  /// Tasks of `settings` that have numbers from an earlier time: they are not generated, scored or
  /// in the result, but what they decide for the others (a fraction as limit) stays.
  std::vector<std::string> measured;
  /// When a score of a part is wanted: fractions of each task's documents, above 0 and below 1,
  /// ascending. The documents are then answered in an order that these and the seed decide. Which
  /// documents, prompts and settings make the result is the same as without; so are the answers
  /// where a batch's company changes none (float32 on a CPU), which bfloat16 on a device does not
  /// promise.
  std::vector<double> interim_at;
  /// Names the run and the kind of weights: the evaluator takes the answers of an earlier
  /// checkpoint of this name as drafts, which changes no answer, and keeps this one's. Empty:
  /// neither.
  std::string series;
  bool operator==(const Evaluate&) const = default;
};

struct Cancel {
  std::string id;
  bool operator==(const Cancel&) const = default;
};

struct Bye {
  bool operator==(const Bye&) const = default;
};

/// Also the heartbeat: at least one a second while a job runs.
struct Progress {
  std::string id;
  std::string stage;      ///< "loading" | "preparing" | "evaluating" | "scoring"
  std::string task;       ///< may be empty
  std::int64_t done = 0;  ///< of the whole job's stage
  std::int64_t total = 0;
  /// Raised by the thread that works, at each small step (a read of a file, a picture, a layer of a
  /// batch, a scored sample); never lowered by one process. A heartbeat that repeats it tells that
  /// the process lives and its work stands still.
  std::uint64_t tick = 0;
  bool operator==(const Progress&) const = default;
};

/// What a task's answers and number depend on beside the weights, as SHA-256 in hexadecimal: its
/// definition, documents, pictures and prompts, the model's text files, what is generated with.
struct TaskFingerprint {
  std::string task;
  std::string sha256;
  bool operator==(const TaskFingerprint&) const = default;
};

/// All prompts are made; nothing is answered, or taken from `answered`, yet. A task that failed is
/// left out.
struct Prepared {
  std::string id;
  std::vector<TaskFingerprint> tasks;
  bool operator==(const Prepared&) const = default;
};

/// One generated answer, not yet scored: the agent stores it, so that a restart redoes at most one
/// batch.
struct Sample {
  std::string id;
  std::string task;
  std::int64_t doc_id = 0;
  std::string text;  ///< as generated
  std::int64_t output_tokens = 0;
  std::string fingerprint;           ///< the task's
  std::optional<bool> cut_off = {};  ///< all its tokens were taken and none ended it
  bool operator==(const Sample&) const = default;
};

/// One scored sample, in document order, before `result`. `line` is the JSON object of lmms-eval's
/// samples file.
struct Scored {
  std::string id;
  std::string task;
  std::int64_t doc_id = 0;
  std::string line;
  std::string fingerprint;  ///< the task's
  /// Names (picture_name.h) of the pictures in its prompt, at most kMostSamplePictures; whether a
  /// file is there is another question. They follow from task, fingerprint and document.
  std::vector<std::string> pictures = {};
  bool operator==(const Scored&) const = default;
};

struct Metric {
  std::string name;  ///< "anls"
  std::string filter = "none";
  std::optional<double> value;  ///< absent: see `missing`
  std::optional<double> stderr_value;
  std::string stderr_source;  ///< "" (as lmms-eval) | "bootstrap" (ours, for its N/A) | "clustered"
  std::string missing;        ///< why there is no value
  bool higher_is_better = true;
  bool operator==(const Metric&) const = default;
};

struct TaskResult {
  std::string task;
  std::string version;      ///< lmms-eval's `versions` entry
  std::string fingerprint;  ///< the task's; empty if it failed
  std::string alias;
  std::int64_t num_fewshot = 0;
  std::int64_t n = 0;            ///< samples scored
  std::int64_t n_original = 0;   ///< documents in the split
  std::int64_t n_effective = 0;  ///< of those, as many as `limit` allows; `offset` may leave fewer
  std::vector<Metric> metrics;
  std::string
      lmms_results;  ///< JSON object: this task's entry of lmms-eval's "results", in its key order
  std::string lmms_config;  ///< JSON object: its entry of "configs"
  std::string notes;        ///< JSON object: what a reader must know (random draws counted, compat,
                            ///< attention used …)
  std::string error;        ///< not empty: this task failed, the others stand
  std::string error_kind;   ///< of it, as JobError's; may be absent
  /// Of a failed task: what it failed in, so that a change can be told. The fingerprint of its
  /// data, as far as they could be opened; else empty.
  std::string circumstances;
  /// SHA-256 over what is asked and how it is counted, whatever the checkpoint: the task's
  /// definition, its data, the documents and pictures that were chosen, how answers are generated,
  /// the dtype that is computed in, the base model where the checkpoint needs one. Numbers of two
  /// questions are no series, though their settings be the same. Empty: it failed, or an older
  /// evaluator did not tell.
  std::string question = {};
  bool operator==(const TaskResult&) const = default;
};

/// The score of a task as far as it is answered: of `n` of its `documents`, chosen at random, the
/// same ones for every checkpoint.
struct InterimScore {
  std::string task;
  std::string fingerprint;  ///< the task's
  std::int64_t n = 0;
  std::int64_t documents = 0;   ///< of the whole task, as limit and offset choose them
  std::vector<Metric> metrics;  ///< stderr_source may be "clustered": over what shares a picture
  std::string notes;            ///< JSON object, as a TaskResult's; "counted_as_misses": how many
  bool operator==(const InterimScore&) const = default;
};

/// On the way, between two answers: never a result, and replaced by the one that follows. Every
/// answer that it is of was told before it.
struct Interim {
  std::string id;
  std::string weights_sha256;
  double fraction = 0;              ///< the one of Evaluate::interim_at that was reached
  std::vector<InterimScore> tasks;  ///< those that have enough answers for a score
  double seconds = 0;               ///< since `evaluate`
  bool operator==(const Interim&) const = default;
};

struct EvaluationResult {
  std::string id;
  std::string weights_sha256;
  std::vector<TaskResult> tasks;
  double seconds = 0;
  std::string attn_implementation;  ///< what really ran
  /// Of earlier checkpoints' answers (Evaluate::series): tokens that were tried as those of this
  /// one's answers, and those of them that were right. Absent: an older evaluator counted none.
  std::int64_t draft_tokens = 0;
  std::int64_t draft_tokens_taken = 0;
  bool operator==(const EvaluationResult&) const = default;
};

/// Kinds of errors beside the names of ErrorCode.
/// Memory of the device or of the machine ran out: a smaller batch may do.
inline constexpr std::string_view kOutOfMemory = "out_of_memory";
/// The device's context is poisoned (an illegal access): only a new process can go on.
inline constexpr std::string_view kDeviceFault = "device_fault";
/// The device itself is broken (uncorrectable memory, fallen off the bus): no process can go on.
inline constexpr std::string_view kDeviceLost = "device_lost";
/// Others use the device, alone or too much of it: it is waited for.
inline constexpr std::string_view kDeviceBusy = "device_busy";
/// The weights give scores that are no numbers.
inline constexpr std::string_view kNotFinite = "not_finite";
inline constexpr std::string_view kNoDevice = "no_device";  ///< the one asked for is not there
inline constexpr std::string_view kNoEvaluator = "no_evaluator";  ///< it does not come up
inline constexpr std::string_view kData = "data";        ///< missing, broken, or not for the task
inline constexpr std::string_view kRequest = "request";  ///< one prompt that cannot be answered
/// The error lies in what is around a checkpoint (device, data, settings, programs), not in the
/// checkpoint: it hits every checkpoint alike, and repairing it repairs them all.
bool is_of_surroundings(std::string_view kind);
/// The device failed under the process: nothing that it says afterwards, and nothing that it
/// computed in that attempt, is to be believed.
bool is_device_fault(std::string_view kind);

/// The job ended without a result. The process can go on unless `fatal`.
struct JobError {
  std::string id;  ///< empty: the process itself
  std::string kind;
  std::string stage;
  std::string message;
  bool retryable = false;
  bool fatal = false;  ///< the process ends itself (a poisoned device)
  bool operator==(const JobError&) const = default;
};

using Message =
    std::variant<Hello, Load, Prefetch, Loaded, Answered, Evaluate, Cancel, Bye, Progress, Prepared,
                 Sample, Scored, Interim, EvaluationResult, JobError>;

/// One line without the newline.
std::string encode(const Message& message);

/// kCorruption, with what was seen, for anything that is not exactly such a line. Unknown extra
/// fields are ignored.
Result<Message> decode(std::string_view line);

/// JSON of settings, keys sorted: part of an evaluation's identity, and what `evalcar run
/// --print-config` shows.
std::string encode_settings(const EvaluationSettings& settings);
Result<EvaluationSettings> decode_settings(std::string_view json);

}  // namespace evalcar::protocol
