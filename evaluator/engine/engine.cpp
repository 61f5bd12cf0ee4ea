#include "evaluator/engine/engine.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "evaluator/engine/caught.h"
#include "evaluator/engine/choices.h"
#include "evaluator/engine/device.h"
#include "evaluator/engine/encoded_pictures.h"
#include "evaluator/engine/generator.h"
#include "evaluator/engine/host_pages.h"
#include "evaluator/engine/likelihood_scorer.h"
#include "evaluator/engine/outstanding.h"
#include "evaluator/engine/picture_pages.h"
#include "evaluator/engine/picture_plan.h"
#include "evaluator/engine/picture_queue.h"
#include "evaluator/engine/planner.h"
#include "evaluator/engine/requests.h"
#include "evaluator/engine/resident_model.h"
#include "evaluator/engine/run_errors.h"
#include "evaluator/engine/run_plan.h"
#include "evaluator/engine/width.h"
#include "evaluator/kernels/linear.h"
#include "evaluator/models/registry.h"

namespace evalcar::engine {
namespace {

constexpr int kMostPictureThreads = 8;
constexpr std::uint64_t kPageLockedBytes = std::uint64_t{512} << 20U;  // for pictures, on a GPU
// Up to about so many rows reading a matrix takes most of the time (kernels/linear.h); more of
// them take longer, and a few cores gain nothing by them even where all guesses are right.
constexpr std::int64_t kDraftRows = 16;

class TorchEngine final : public Engine {
 public:
  TorchEngine(EngineOptions options, ResolvedDevice device, AttentionChoice attention)
      : options_(std::move(options)),
        device_(std::move(device)),
        attention_(std::move(attention)),
        encoded_(options_.encoded_pictures_bytes, &free_host_memory),
        resident_(device_.device, options_.gpu_memory_utilization, at::get_num_threads(),
                  encoded_) {}

  Result<LoadedWeights> load(const FileSystem& files, const checkpoint::Plan& plan,
                             const std::string& config_dir, const std::string& dtype,
                             const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
                             std::stop_token stop) override {
    resident_.forget();
    EVALCAR_RETURN_IF_ERROR(keep_to_share());
    auto loaded = caught("loading weights", device_.device, [&] {
      return load_model(files, plan, config_dir, dtype, on_progress, stop);
    });
    if (!loaded) resident_.forget();
    return loaded;
  }

  Status prefetch(const FileSystem& files, const checkpoint::Plan& plan,
                  const std::string& config_dir, const std::string& dtype,
                  std::stop_token stop) override {
    EVALCAR_ASSIGN_OR_RETURN(const at::ScalarType resolved, resolve_dtype(dtype));
    EVALCAR_RETURN_IF_ERROR(keep_to_share());
    return resident_.prefetch(files, plan, config_dir, resolved, stop);
  }

  Result<RunChoice> choose(const RunOptions& options) override {
    if (resident_.model() == nullptr)
      return make_error(ErrorCode::kInternal, "no weights are loaded");
    const std::string& name = options.attn_implementation;
    EVALCAR_ASSIGN_OR_RETURN(const AttentionChoice attention,
                             choose_attention(name.empty() ? options_.attn_implementation : name));
    batch_size_ = options.batch_size;
    return caught("settling the attention", device_.device, [&]() -> Result<RunChoice> {
      attention_.kind = attention.kind;
      resident_.bind(attention_.kind);
      RunChoice choice{std::string(models::attention_name(attention_.kind)), attention.warning};
      if (std::exchange(told_, choice.warning) == choice.warning) choice.warning.clear();
      return choice;
    });
  }

  Status generate(std::span<const Request> requests, const ImageSource& images,
                  const vision::ProcessorSettings& processor, const RunEvents& events,
                  std::stop_token stop) override {
    if (resident_.model() == nullptr)
      return make_error(ErrorCode::kInvalidArgument, "no weights are loaded");
    Status done = caught("generating", device_.device,
                         [&] { return run(requests, images, processor, events, stop); });
    // Others see it as free then, and what is read ahead next makes no part of it its own.
    release_unused_memory(device_.device);
    if (!done.has_value()) done = looked_into(std::move(done).error(), device_.description.uuid);
    return done;
  }

  void unload() override {
    resident_.unload();
    pages_.reset();
    release_unused_memory(device_.device);
    release_page_locked_memory(device_.device);
  }

 private:
  // Before anything is taken; again is the same.
  Status keep_to_share() const {
    if (!options_.share_gpu || device_.device.is_cpu()) return {};
    return caught("limiting what is taken of the GPU's memory", device_.device, [&]() -> Status {
      limit_gpu_memory(device_.device, options_.gpu_memory_utilization);
      return {};
    });
  }

  Result<at::ScalarType> resolve_dtype(const std::string& name) const {
    return choose_dtype(name.empty() || name == "auto" ? options_.dtype : name, device_.device);
  }

  Result<LoadedWeights> load_model(
      const FileSystem& files, const checkpoint::Plan& plan, const std::string& config_dir,
      const std::string& dtype_name,
      const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
      const std::stop_token& stop) {
    EVALCAR_ASSIGN_OR_RETURN(const at::ScalarType dtype, resolve_dtype(dtype_name));
    EVALCAR_ASSIGN_OR_RETURN(
        const ResidentModel::Loaded loaded,
        resident_.load(files, plan, config_dir, dtype, attention_.kind, on_progress, stop));
    const models::ModelInfo& info = resident_.model()->info();
    std::string warning = std::exchange(attention_.warning, "");
    if (warning.empty() && !told_loss_) {
      warning = lost_in(dtype, plan);
      told_loss_ = !warning.empty();
    }
    return LoadedWeights{
        .weights_sha256 = loaded.report.weights_sha256,
        .architecture = info.model_type,
        .dtype = dtype == at::kFloat ? "float32" : "bfloat16",
        .tensors = loaded.report.tensors,
        .bytes = loaded.report.bytes,
        .attn_implementation = std::string(models::attention_name(attention_.kind)),
        .warning = std::move(warning),
        .vocab_size = info.vocab,
        .image_token_id = info.image_token_id,
        .vision_patch_size = static_cast<int>(info.patch_size),
        .prefetched = loaded.prefetched};
  }

  Status run(std::span<const Request> requests, const ImageSource& images,
             const vision::ProcessorSettings& processor, const RunEvents& events,
             const std::stop_token& stop) {
    Outstanding outstanding(requests, events);
    if (!outstanding.any()) return {};
    if (images.size() > 0)
      EVALCAR_RETURN_IF_ERROR(check_processor(processor, resident_.model()->info()));
    fitting_.widen(full_width());
    std::vector<PreparedRequest> prepared(requests.size());
    std::vector<std::size_t> good;  // the requests that can run
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (stop.stop_requested()) return cancelled_run();
      if (!outstanding.is_wanted(i)) continue;
      auto request = prepare_request(*resident_.model(), requests[i], images);
      if (!request) {
        refuse(outstanding, i, std::move(request).error());
        continue;
      }
      // Where rounding decides too much for drafts, company does, too: packs are the same whatever
      // this process has measured before.
      if (draft_rows() == 0) request->plan.expected_tokens.reset();
      prepared[i] = std::move(request).value();
      good.push_back(i);
    }
    PlannerLimits limits = planner_limits(prepared, events);
    for (const std::size_t i : std::exchange(good, {})) {
      if (!outstanding.is_wanted(i)) continue;
      Status fits = check_fits(prepared[i].plan, limits);
      const bool may_fit =
          prepared[i].plan.need() <= std::max(limits.most_positions, limits.free_positions);
      if (!fits && may_fit && gave_way()) {
        limits = planner_limits(prepared, events);
        fits = check_fits(prepared[i].plan, limits);
      }
      if (fits) {
        good.push_back(i);
        continue;
      }
      // No fault of the request's: the whole run waits until others leave it room.
      if (is_device_busy(fits) && !requests[i].answered_before) return fits;
      refuse(outstanding, i, std::move(fits).error());
    }
    // What is wrong with one request may have made earlier ones pointless.
    std::erase_if(good, [&](std::size_t i) { return !outstanding.is_wanted(i); });
    RunEvents told = events;
    told.answered = [&](std::size_t i, const Result<Answer>& answer) {
      outstanding.answer(i, answer);
    };
    Status done;
    Attempt attempt;
    encoded_.set_keeping(true);
    while (true) {
      const Planned planned{{requests, prepared, images, told, stop}, processor, outstanding};
      attempt.largest = 0;
      done = caught("generating", device_.device,
                    [&] { return run_plans(planned, good, limits, attempt); });
      if (!is_out_of_memory(done)) break;
      // On the CPU what is kept of pictures is in the same memory.
      const bool enough = gave_way(/*again=*/true) || gave_up_pictures();
      const std::int64_t next = enough ? 0 : fitting_.shrink(full_width(), attempt.largest);
      if (!enough && next == 0) break;
      // Everything of the failed attempt is released: what is free now is what there is.
      release_unused_memory(device_.device);
      if (!enough && events.shrunk) events.shrunk(next, done.error().message);
      // Where nothing is halved it is the same plan once more: packs that are done are passed over,
      // and in the one that is not each has the company that it would have had.
      if (!enough) std::erase_if(good, [&](std::size_t i) { return !outstanding.is_left(i); });
      std::ranges::sort(good);
      limits = planner_limits(prepared, events);
      if (!attempt.is_dealt) continue;
      limits.rank = 0;  // what is left is all of this rank's
      limits.world_size = 1;
    }
    return done;
  }

  // Each rank sees what none can compute; the first one tells.
  void refuse(Outstanding& outstanding, std::size_t request, Error error) const {
    if (options_.rank == 0) outstanding.answer(request, std::move(error));
  }

  // What is evaluated goes before what was read ahead: whether memory came back from there. A read
  // that hangs is waited for once, or each time that its memory would spare others a narrower pack.
  bool gave_way(bool again = false) {
    constexpr std::chrono::seconds kPatience{2};
    if (!resident_.drop_prefetched(kPatience, again)) return false;
    release_unused_memory(device_.device);
    return true;
  }

  // Before a run is made narrower on the CPU: whether there was any. What it encodes again it does
  // not keep, or it would lack that memory again.
  bool gave_up_pictures() {
    if (!device_.device.is_cpu() || !encoded_.clear()) return false;
    encoded_.set_keeping(false);
    return true;
  }

  struct Planned {
    RunInput input;
    const vision::ProcessorSettings& processor;
    Outstanding& outstanding;
  };

  struct Attempt {
    std::int64_t largest = 0;  ///< sequences of the pack that was begun last
    bool is_dealt = false;     ///< `good` is what this rank has to answer, now or of one before
  };

  // `good` becomes what this rank has to answer of it.
  Status run_plans(const Planned& run, std::vector<std::size_t>& good, const PlannerLimits& limits,
                   Attempt& attempt) {
    EVALCAR_ASSIGN_OR_RETURN(RunPlan plan,
                             plan_requests(run.input.requests, run.input.prepared, good, limits));
    if (draft_rows() > 0 &&
        run.outstanding.computed_again(plan.generating) > limits.max_sequences) {
      leave_out_known_texts(run.input.requests, good);
      EVALCAR_ASSIGN_OR_RETURN(plan,
                               plan_requests(run.input.requests, run.input.prepared, good, limits));
    }
    good = plan.requests();
    attempt.is_dealt = true;
    GeneratorOptions generating{.reading = reader_options(),
                                .observe_logits = options_.observe_logits,
                                .draft_rows = draft_rows(),
                                .graphs = options_.decode_graphs,
                                .observe_pass = options_.observe_pass};
    if (device_.device.is_cuda()) give_one_shape(plan.generating, limits, generating.reading);
    EVALCAR_RETURN_IF_ERROR(run_packs<Generator>(run, std::move(plan.generating),
                                                 std::move(generating), attempt.largest));
    return run_packs<Scorer>(run, std::move(plan.scoring),
                             ScorerOptions{reader_options(), options_.scored_rows},
                             attempt.largest);
  }

  // Of the cache for all packs, where memory has it: graphs are of one shape.
  static void give_one_shape(std::span<const Pack> packs, const PlannerLimits& limits,
                             ReaderOptions& reading) {
    std::int64_t slots = 0, capacity = 0;
    for (const Pack& pack : packs) {
      slots = std::max(slots, pack.sequences);
      capacity = std::max(capacity, pack.capacity);
    }
    if (slots == 0 || capacity > limits.max_positions / slots) return;
    reading.slots = slots;
    reading.capacity = capacity;
  }

  template <typename Runner, typename Options>
  Status run_packs(const Planned& run, std::vector<Pack> packs, Options options,
                   std::int64_t& largest) {
    if (packs.empty()) return {};
    const RunInput& input = run.input;
    const Sha256Digest encoder = encoder_of(run.processor);
    const PicturePlan plan(packs, input.requests, input.images, width().patches);
    if (device_.device.is_cuda() && !pages_)
      pages_.emplace(device_.device, kPageLockedBytes, &free_host_memory);
    PictureQueue pictures(
        input.images, run.processor,
        plan.pictures_to_make(
            [&](std::size_t number) { return run.outstanding.any_of(packs[number]); }, input.images,
            encoder, [&](const Sha256Digest& batch) { return encoded_.mark(batch); }),
        picture_options(input.events));
    Runner runner(*resident_.model(), input,
                  {plan, pictures, encoded_, encoder, pages_ ? &*pages_ : nullptr},
                  std::move(options));
    for (std::size_t number = 0; number < packs.size(); ++number) {
      if (input.stop.stop_requested()) return cancelled_run();
      if (!run.outstanding.any_of(packs[number])) {
        run.outstanding.pass_over(packs[number]);
        continue;
      }
      largest = packs[number].sequences;
      if (options_.before_pack) options_.before_pack(largest);
      EVALCAR_RETURN_IF_ERROR(runner.run_pack(number, std::move(packs[number])));
    }
    return {};
  }

  // All that the tower makes of a batch follows from, but for the pictures.
  Sha256Digest encoder_of(const vision::ProcessorSettings& processor) const {
    Sha256 hash;
    hash.update("encoded pictures 1\n" + resident_.tower() + "\n" + device_.description.device +
                "\n" + std::string(models::attention_name(attention_.kind)) + "\n" +
                vision::settings_text(processor));
    return hash.finish();
  }

  // As asked for, or by the device.
  Width full_width() const {
    const bool gpu = device_.device.is_cuda();
    const std::int64_t asked = batch_size_ > 0 ? batch_size_ : options_.batch_size;
    return {.sequences = asked > 0 ? asked : (gpu ? 128 : 32),
            .prefill_tokens =
                options_.prefill_tokens > 0 ? options_.prefill_tokens : (gpu ? 8192 : 1024),
            .patches = gpu ? 32768 : 4096};
  }

  // That, but for what memory does not allow.
  Width width() const { return fitting_.of(full_width()); }

  PlannerLimits planner_limits(std::span<const PreparedRequest> prepared, const RunEvents& events) {
    const models::ModelInfo& info = resident_.model()->info();
    const auto position_bytes =
        static_cast<std::uint64_t>(2 * info.layers * info.kv_heads * info.head_dim) *
        c10::elementSize(resident_.dtype());
    CacheBudget budget = cache_budget();
    // What is read ahead decides nothing: it goes before packs become others than without it. It
    // stays where others have so much that packs are narrower either way.
    std::vector<std::int64_t> needs;
    for (const PreparedRequest& request : prepared) needs.push_back(request.plan.need());
    const WidestPack widest = widest_pack(needs, budget, position_bytes, full_width().sequences);
    if (budget.now < widest.bytes && budget.without_next >= widest.bytes && gave_way())
      budget = cache_budget();
    if (events.narrowed) {
      const Width full = full_width(), now = width();
      if (now.sequences < widest.sequences || now.prefill_tokens < full.prefill_tokens ||
          now.patches < full.patches)
        events.narrowed("memory ran out before");
      if (budget.now < widest.bytes)
        events.narrowed("of the memory of " + device_.description.device + " too little is free");
    }
    return {.max_sequences = width().sequences,
            .max_positions =
                static_cast<std::int64_t>(std::min(budget.now, budget.planned) / position_bytes),
            .free_positions = static_cast<std::int64_t>(budget.now / position_bytes),
            .most_positions = static_cast<std::int64_t>(budget.alone / position_bytes),
            .share_prefixes = options_.share_prefixes,
            .rank = options_.rank,
            .world_size = options_.world_size};
  }

  CacheBudget cache_budget() {
    const std::uint64_t ahead = resident_.bytes_ahead();
    if (options_.cache_budget) return options_.cache_budget(ahead);
    const std::uint64_t asked = options_.cache_bytes;
    if (asked > 0) return {asked, asked, asked, asked};
    if (device_.device.is_cpu()) return host_cache_budget(encoded_.bytes());
    release_unused_memory(device_.device);  // of the last run: the driver must know that it is free
    return gpu_cache_budget(
        gpu_memory(device_.device, options_.gpu_memory_utilization, resident_.bytes()), ahead);
  }

  // Beside a GPU the host has little else to do. On the CPU one thread fills the gaps between the
  // kernels, and what is held ready counts: memory is what the model is measured by there, too.
  PictureQueueOptions picture_options(const RunEvents& events) {
    const bool gpu = device_.device.is_cuda();
    const int by_default = gpu ? std::clamp(usable_cores() / 2, 1, kMostPictureThreads)
                               : std::min(usable_cores() - 1, 1);
    return {.threads = options_.picture_threads.value_or(by_default),
            .bytes = std::uint64_t{gpu ? 512U : 64U} << 20U,
            .prepared = events.advanced,
            .memory =
                pages_ ? [this](std::size_t count) { return pages_->take(count); } : PatchMemory()};
  }

  // Only where rounding is far below what a token is the best by (kClearMargin), and where what
  // stands beside a row that is decoded changes none of its bits.
  std::int64_t draft_rows() const {
    const bool exact = device_.device.is_cpu() && resident_.dtype() == at::kFloat &&
                       attention_.kind == models::AttentionKind::kSdpa &&
                       kernels::rows_of_one_kernel() >= kMostDecoded;
    return exact ? options_.draft_rows.value_or(kDraftRows) : 0;
  }

  ReaderOptions reader_options() const {
    return {.attention = attention_.kind,
            .dtype = resident_.dtype(),
            .device = device_.device,
            .prefill_tokens = width().prefill_tokens};
  }

  EngineOptions options_;
  ResolvedDevice device_;
  AttentionChoice attention_;
  bool told_loss_ = false;
  std::string told_;  // the last warning about it, not to be repeated for every checkpoint
  std::int64_t batch_size_ = 0;  // of the run; 0: the engine's own
  FittingWidth fitting_;         // what memory allowed, where that was less than asked for
  EncodedPictures encoded_;
  std::optional<PicturePages> pages_;  // of a GPU, from the first run on
  ResidentModel resident_;
};

}  // namespace

Result<bool> reads_pictures(const FileSystem& files, const std::string& config_dir) {
  return caught("reading the configuration", c10::kCPU, [&]() -> Result<bool> {
    EVALCAR_ASSIGN_OR_RETURN(const auto model, models::make_model(files, config_dir));
    return model->info().image_token_id >= 0;
  });
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  return caught("creating the engine", c10::kCPU, [&]() -> Result<std::unique_ptr<Engine>> {
    EVALCAR_ASSIGN_OR_RETURN(ResolvedDevice device, resolve_device(options.device));
    EVALCAR_ASSIGN_OR_RETURN(AttentionChoice attention,
                             choose_attention(options.attn_implementation));
    if (options.rank < 0 || options.rank >= options.world_size) {
      return make_error(ErrorCode::kInvalidArgument,
                        "rank " + std::to_string(options.rank) + " of " +
                            std::to_string(options.world_size) + ": expected 0 to one less");
    }
    EVALCAR_RETURN_IF_ERROR([&]() -> Status {
      auto dtype = choose_dtype(options.dtype, device.device);
      return dtype ? Status() : Status(dtype.error());
    }());
    at::set_num_threads(options.threads > 0 ? options.threads : usable_cores());
    device.device.is_cuda() ? settle_gpu_numbers() : keep_freed_pages();
    return std::unique_ptr<Engine>(
        std::make_unique<TorchEngine>(options, std::move(device), std::move(attention)));
  });
}

}  // namespace evalcar::engine
