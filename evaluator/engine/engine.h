// The engine: a planned, offline, deterministic generator and scorer over resident weights.
//
// Everything is known before the run, so nothing is served: the caller hands over all requests with
// all pictures, the planner (plan.h) groups requests that share pictures and prefixes and cuts them
// into packs, and the answers come back through a callback as they are finished. Same requests,
// same weights: same answers, whatever the packs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "evaluator/engine/cache_budget.h"
#include "evaluator/vision/prepare.h"
#include "store/base/file_system.h"
#include "store/base/hash.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::engine {

struct EngineOptions {
  std::string device = "auto";      ///< "auto" | "cpu" | "cuda" | "cuda:N"
  std::string dtype = "auto";       ///< "auto" | "float32" | "bfloat16"
  std::string attn_implementation;  ///< "" | "flash_attention_2" | "sdpa" | "eager"
  std::int64_t batch_size = 0;  ///< upper bound of sequences decoded together; 0 = by the memory
  double gpu_memory_utilization = 0.8;  ///< of the device's memory
  /// Others compute on the GPU: what libtorch holds of its memory, kept and unused parts included,
  /// never grows beyond that share.
  bool share_gpu = false;
  int threads = 0;                  ///< CPU threads; 0 = all cores this process may use
  std::int64_t prefill_tokens = 0;  ///< prompt tokens computed together; 0 = by the device
  std::uint64_t cache_bytes = 0;  ///< of keys and values; 0 = what the memory of the device allows
  /// For tests: in place of what the device says, of the bytes that were read ahead.
  std::function<CacheBudget(std::uint64_t)> cache_budget;
  std::optional<int>
      picture_threads;  ///< that prepare pictures ahead; 0 = none; absent = by the device
  /// Host memory for what the vision tower made of pictures, which later checkpoints with the same
  /// tower take instead of computing it (encoded_pictures.h); at most a quarter of what is free. No
  /// answer depends on it. 0 = none.
  std::uint64_t encoded_pictures_bytes = 0;
  /// Scored rows whose scores over the vocabulary are in memory at once; 0 = by the vocabulary.
  std::int64_t scored_rows = 0;
  /// Rows that are computed together while answers are generated, drafts included; 0: no drafts are
  /// used; absent: by the device.
  std::optional<std::int64_t> draft_rows;
  bool share_prefixes =
      true;  ///< a prefix that requests share is computed once; answers are the same
  /// This engine answers its share of every run's requests; the engines of the other ranks, given
  /// the same requests, answer the others (Gathering).
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  /// For tests and diagnosis: the scores of every step before sampling, (vocab) float32, as
  /// (request, step, scores). Costs a copy per step; empty by default.
  std::function<void(std::size_t, std::int64_t, std::span<const float>)> observe_logits;
  /// On a GPU: passes of decoding are captured as CUDA graphs; answers are the same.
  bool decode_graphs = true;
  /// For tests: called after each such pass, whether a graph was replayed.
  std::function<void(bool)> observe_pass;
  /// For tests: called before each pack with the number of its sequences; may throw what libtorch
  /// throws (a full device).
  std::function<void(std::int64_t)> before_pack;
};

/// What was generated with.
struct GenerationSettings {
  std::int64_t max_new_tokens = 128;
  double temperature = 0;  ///< 0 = greedy
  double top_p = 1;
  std::int64_t top_k = 0;
  double repetition_penalty =
      1;  ///< generation_config.json's, as Hugging Face applies it (over prompt and answer)
  std::vector<std::int32_t> stop_ids;  ///< end-of-sequence ids
  std::uint64_t seed = 0;
};

/// Tokens [begin, end) of a sequence.
struct TokenSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What is asked in place of an answer: how likely given tokens are.
struct Scoring {
  /// Tokens of the request itself, each given all before it: teacher-forced. Ascending, none
  /// empty, from token 1 on.
  std::vector<TokenSpan> spans;
  /// What may follow the request's tokens, none empty, without pictures. The request's tokens are
  /// read once, and each continuation goes on from there.
  std::vector<std::vector<std::int32_t>> continuations;
};

struct Request {
  std::vector<std::int32_t> tokens;  ///< the whole prompt; each picture's placeholder id repeated
                                     ///< PreparedSize::tokens times
  std::vector<std::size_t>
      images;  ///< indices into the pictures of the run, in order of appearance
  GenerationSettings generation;
  /// Set: nothing is generated (`generation` does not count), the tokens that it names are scored.
  std::optional<Scoring> scoring = {};
  /// Names what is asked, for draws (temperature > 0): equal seeds and streams draw alike, whatever
  /// else is in the run.
  std::uint64_t stream = 0;
  /// What an earlier checkpoint answered to the very same request, or nothing. Saves time where a
  /// greedy answer is like it, and changes no token; of no use on a GPU, nor in bfloat16.
  std::vector<std::int32_t> draft = {};
  /// How many tokens the answer will probably have; absent: nobody knows. Decides with which others
  /// it is computed, and nothing else; not looked at where drafts are of no use, nor beside
  /// pictures.
  std::optional<std::int64_t> expected_tokens = {};
  /// Its answer is known, from an attempt that was interrupted. It has its place in the plan as
  /// ever, so that all others stand where they stood then; it is computed only as company of one
  /// that has no answer yet, and not answered again.
  bool answered_before = false;
};

/// How likely a span or a continuation is: log_softmax in float32 of each of its tokens' scores,
/// summed in float64 in their order.
struct Score {
  double log_likelihood = 0;  ///< natural logarithm; finite
  std::int64_t tokens = 0;
  bool is_greedy = false;  ///< each token has the highest score; of equal ones the lowest id
};

struct Answer {
  std::vector<std::int32_t> tokens;  ///< without the stop token
  bool stopped = false;              ///< a stop token came
  bool ended = false;  ///< RunEvents::ends said so; where neither, max_new_tokens was reached
  /// Of a request with `scoring`: its spans, then its continuations.
  std::vector<Score> scores = {};
  std::int64_t draft_tokens = 0;        ///< of Request::draft that were tried
  std::int64_t draft_tokens_taken = 0;  ///< of those that were the answer's
};

/// Called with a request's index and its answer, or with what is wrong with that request alone.
using OnAnswer = std::function<void(std::size_t, const Result<Answer>&)>;

/// What a run tells, and asks. All but `answered` may be empty.
struct RunEvents {
  /// On the calling thread, as each request is done.
  OnAnswer answered;
  /// Asked on the calling thread before work on a request begins; false drops it without an answer.
  std::function<bool(std::size_t)> wanted;
  /// Asked on the calling thread whether an answer ends with the last of these tokens, its own so
  /// far: after each that is no stop token. What it says follows from these alone.
  std::function<bool(std::size_t, std::span<const std::int32_t>)> ends;
  /// Called at each small step: a picture is prepared, a layer of a batch is computed (on a GPU:
  /// enqueued; a device that hangs ends this within one batch). From any thread.
  std::function<void()> advanced;
  /// Memory ran out, for that reason: from now on at most so many sequences go together. What was
  /// not answered is computed again.
  std::function<void(std::int64_t most_sequences, const std::string& reason)> shrunk;
  /// Packs are narrower than usual, for that reason: memory ran out in the run before, or others
  /// have it. Called as often as packs are planned.
  std::function<void(const std::string& reason)> narrowed;
  /// So many pictures went through the vision tower, or, where `reused`, what it had made of them
  /// before was taken. On the calling thread.
  std::function<void(std::size_t pictures, bool reused)> encoded;
};

/// The pictures of a run, made when they are needed: a data set's pictures do not fit in memory at
/// once. Called from the engine's own threads; implementations are thread-safe.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::size_t size() const = 0;
  /// Equal keys promise equal pictures (a hash of the file's bytes, say): such pictures are encoded
  /// once, and prompts over them share what they have in common.
  virtual std::uint64_t key_of(std::size_t index) const { return index; }
  /// SHA-256 of the picture's encoded bytes: with the processor's settings all that its patches
  /// follow from, in this run and any other. Absent: what is made of it is forgotten after the run.
  virtual std::optional<Sha256Digest> content_of(std::size_t) const { return std::nullopt; }
  /// Grid of picture `index`, known without decoding its pixels.
  virtual vision::PreparedSize size_of(std::size_t index) const = 0;
  virtual Result<vision::PreparedImage> load(std::size_t index) const = 0;
};

struct DeviceDescription {
  std::string device;   ///< "cpu", "cuda:0"
  std::string name;     ///< the GPU's or CPU's name
  std::string warning;  ///< why `auto` took the CPU; empty otherwise
  std::string torch_version;
  std::string uuid = {};           ///< "GPU-…" or "MIG-…"; empty on the CPU
  int capability = 0;              ///< 90 for compute capability 9.0; 0 on the CPU
  std::uint64_t memory_bytes = 0;  ///< of the GPU, in all; 0 on the CPU
};

/// What `device` and `auto` mean on this machine. kInvalidArgument for an explicit cuda device that
/// is not there (never the CPU instead), naming driver and CUDA_VISIBLE_DEVICES.
Result<DeviceDescription> describe_device(const std::string& device);

/// Of this build and machine, for `evalcar doctor`. Makes no context on a device.
struct DeviceReport {
  std::string torch_version;
  std::string nccl_version;             ///< "" if this build has none
  std::string no_gpu;                   ///< why there is no GPU; "" if there is one
  std::vector<DeviceDescription> gpus;  ///< all that are visible, also those that cannot be used
};
DeviceReport describe_devices();

struct LoadedWeights {
  std::string weights_sha256;  ///< over the tensors as stored
  std::string architecture;    ///< model_type of config.json
  std::string dtype;           ///< "float32" | "bfloat16": what the device holds
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;          ///< as stored
  std::string attn_implementation;  ///< what will run
  std::string warning;  ///< to be told once: something asked for was replaced; empty otherwise
  std::int64_t vocab_size = 0;
  int image_token_id = -1;     ///< config.json's; -1 for a text model
  int vision_patch_size = 14;  ///< pixels per side of a patch of the vision tower
  bool prefetched = false;     ///< Engine::prefetch() had read them

  bool reads_pictures() const { return image_token_id >= 0; }
};

/// Whether the model that `<config_dir>/config.json` describes takes pictures. The errors are those
/// of Engine::load() for the file.
Result<bool> reads_pictures(const FileSystem& files, const std::string& config_dir);

/// What one evaluation may ask for of an engine that already holds its weights.
struct RunOptions {
  std::string attn_implementation;  ///< as in EngineOptions; "" = what the engine was made with
  std::int64_t batch_size = 0;      ///< upper bound of sequences decoded together; 0 = by memory
};

/// What will run.
struct RunChoice {
  std::string attn_implementation;
  std::string warning;  ///< something asked for was replaced: the first time; empty otherwise
};

/// One model on one device. One thread at a time, but for prefetch(). Catches every exception of
/// libtorch at this edge.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  virtual ~Engine() = default;

  /// Makes the weights of a plan resident: every tensor that the configuration expects exactly
  /// once, right shape, finite values; hashes on the way; the files are checked again afterwards.
  /// On an error nothing is resident. kUnsupported lists the known architectures; kCorruption names
  /// tensors that are missing, extra, misshapen or not finite. `config_dir` holds config.json.
  /// `on_progress(bytes_done, bytes_total)` may be empty.
  virtual Result<LoadedWeights> load(
      const FileSystem& files, const checkpoint::Plan& plan, const std::string& config_dir,
      const std::string& dtype,
      const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
      std::stop_token stop) = 0;

  /// Reads the weights that a later load() is expected to ask for, beside what is resident and what
  /// runs. From any thread; one call at a time. That load() takes them if they are what it would
  /// read then (same plan, model and dtype, files untouched), and tells the same; any other takes
  /// no notice. Holds one checkpoint; the last one's memory is given back by the next call, by
  /// unload(), and where a run needs it. The errors are those of load(); kUnavailable where there
  /// is no room.
  virtual Status prefetch(const FileSystem& files, const checkpoint::Plan& plan,
                          const std::string& config_dir, const std::string& dtype,
                          std::stop_token stop) = 0;

  /// Settles what the next generate() runs with. Resident weights stay. kInvalidArgument, with the
  /// known names, for an attention that is not one of them; kInternal without weights.
  virtual Result<RunChoice> choose(const RunOptions& options) = 0;

  /// Answers all requests. `events.answered(request index, answer)` is called on the calling thread
  /// as each is done, once for each request that is wanted and was not answered before. A run that
  /// goes on after an interruption, given the same requests, gives the bits that it would have
  /// given undisturbed, as long as memory allows the same packs. What is wrong with one request (a
  /// token that the model does not know, a picture that cannot be read, more cache positions than
  /// there are, scores that are no numbers) is told as the Error of that request, and the others go
  /// on. Where memory runs out the batch is halved, down to one sequence. The returned error ends
  /// the run: kCancelled when stopped; else as weights::torch_error() tells ("out of memory while
  /// …", "device fault while …").
  virtual Status generate(std::span<const Request> requests, const ImageSource& images,
                          const vision::ProcessorSettings& processor, const RunEvents& events,
                          std::stop_token stop) = 0;

  /// Gives the weights' and caches' memory back.
  virtual void unload() = 0;
};

}  // namespace evalcar::engine
