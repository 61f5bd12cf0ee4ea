#include "evaluator/engine/resident_model.h"

#include <algorithm>
#include <utility>

#include "evaluator/engine/device.h"
#include "evaluator/kernels/tile_unit.h"
#include "evaluator/models/registry.h"
#include "evaluator/models/tower_hash.h"

namespace evalcar::engine {
namespace {

// Each hashes 0.6 to 1.5 GB/s. Beside a GPU nobody of this process computes on the host meanwhile.
constexpr int kReadingThreads = 4;
constexpr int kReadingThreadsForGpu = 16;

}  // namespace

Result<ResidentModel::Loaded> ResidentModel::load(
    const FileSystem& files, const checkpoint::Plan& plan, const std::string& config_dir,
    at::ScalarType dtype, models::AttentionKind attention,
    const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
    const std::stop_token& stop) {
  model_.reset();
  dtype_ = dtype;
  EVALCAR_ASSIGN_OR_RETURN(auto made,
                           models::make_configured_model(files, config_dir, plan.gives_up_tie));
  std::unique_ptr<models::Model> model = std::move(made.model);
  const weights::WeightLayout layout = model->layout();
  Loaded loaded;
  auto shadow = prefetch_.take(files, plan, layout, dtype_);
  loaded.prefetched = shadow.has_value();
  if (shadow) {  // nothing holds the arena's address but the model, which is bound anew
    arena_ = std::move(shadow->arena);
    release_unused_memory(device_);
    loaded.report = std::move(shadow->report);
    if (on_progress) on_progress(loaded.report.bytes, loaded.report.bytes);
  } else {
    EVALCAR_ASSIGN_OR_RETURN(loaded.report, read(files, plan, layout, on_progress, stop));
  }
  bytes_ = static_cast<std::uint64_t>(arena_->bytes());
  model->bind(*arena_, attention);
  model_ = std::move(model);
  if (model_->info().image_token_id >= 0) {
    tower_ = models::tower_sha256(loaded.report.digests, layout) + "\n" + made.config_sha256 +
             "\n" + c10::toString(dtype_);
    encoded_.begin(tower_);
  }
  return loaded;
}

Result<weights::LoadReport> ResidentModel::read(
    const FileSystem& files, const checkpoint::Plan& plan, const weights::WeightLayout& layout,
    const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
    const std::stop_token& stop) {
  EVALCAR_ASSIGN_OR_RETURN(const auto assignment, weights::assign(plan, layout));
  if (arena_ && !arena_->fits(layout, dtype_, device_)) arena_.reset();
  if (!arena_) {
    prefetch_.drop(std::chrono::milliseconds(0));  // more than was counted on
    if (device_.is_cpu()) encoded_.clear();
    release_unused_memory(device_);
    arena_.emplace(layout, dtype_, device_);
  }
  const int most = std::min(device_.is_cpu() ? kReadingThreads : kReadingThreadsForGpu, threads_);
  // As what is read ahead leaves half of the host's memory to others.
  const int threads = weights::threads_within(plan, device_, most, free_host_memory() / 2);
  EVALCAR_ASSIGN_OR_RETURN(auto report, weights::load(files, plan, layout, assignment, *arena_,
                                                      threads, on_progress, stop));
  if (device_.is_cpu())
    arena_->make_halves(weights::stored_as_bfloat16(plan, layout, assignment),
                        kernels::has_tile_unit(), host_cache_budget(encoded_.bytes()).now);
  return report;
}

Status ResidentModel::prefetch(const FileSystem& files, const checkpoint::Plan& plan,
                               const std::string& config_dir, at::ScalarType dtype,
                               const std::stop_token& stop) {
  return prefetch_.read(files, plan, config_dir, dtype, bytes_, stop);
}

void ResidentModel::unload() {
  model_.reset();
  arena_.reset();
  bytes_ = 0;
  encoded_.clear();
  prefetch_.drop(std::chrono::milliseconds(0));
}

}  // namespace evalcar::engine
