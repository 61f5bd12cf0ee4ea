#include "evaluator/engine/prefetch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "evaluator/engine/caught.h"
#include "evaluator/engine/device.h"
#include "evaluator/kernels/tile_unit.h"
#include "evaluator/models/registry.h"

namespace evalcar::engine {
namespace {

// On the CPU more would be in the way of those who compute.
int threads_beside(c10::Device device, int most) { return std::min(device.is_cpu() ? 2 : 6, most); }

std::string gib(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10) >> 30U;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

Error no_room(std::uint64_t needed, const char* where, std::uint64_t free) {
  return make_error(ErrorCode::kUnavailable, "no room beside what is evaluated: " + gib(needed) +
                                                 " needed, " + gib(free) + " may be taken of the " +
                                                 where + "'s memory");
}

}  // namespace

Prefetch::Prefetch(c10::Device device, double utilization, int most_threads)
    : device_(device), utilization_(utilization), threads_(threads_beside(device, most_threads)) {}

Status Prefetch::read(const FileSystem& files, const checkpoint::Plan& plan,
                      const std::string& config_dir, at::ScalarType dtype, std::uint64_t resident,
                      const std::stop_token& stop) {
  std::stop_source own;
  std::optional<weights::Shadow> before;
  {
    const std::scoped_lock lock(mutex_);
    if (reading_) return make_error(ErrorCode::kUnavailable, "another checkpoint is being read");
    reading_ = true;
    stop_ = own;
    before = std::exchange(kept_, std::nullopt);
    bytes_of_reading_ = before ? static_cast<std::uint64_t>(before->arena.bytes()) : 0;
  }
  const std::stop_callback passed_on(stop, [own]() mutable { own.request_stop(); });
  auto shadow = caught("reading weights ahead", device_, [&]() -> Result<weights::Shadow> {
    EVALCAR_ASSIGN_OR_RETURN(const auto model,
                             models::make_model(files, config_dir, plan.gives_up_tie));
    const weights::WeightLayout layout = model->layout();
    if (before && weights::is_current(*before, files, plan, layout, dtype, device_)) {
      return std::move(*before);
    }
    // To a GPU's driver it stays taken: an arena of the same shape comes out of the very memory.
    const bool reused = before && !device_.is_cpu() && before->arena.fits(layout, dtype, device_);
    const std::uint64_t kept = reused ? static_cast<std::uint64_t>(before->arena.bytes()) : 0;
    before.reset();
    set_bytes_of_reading(0);
    EVALCAR_RETURN_IF_ERROR(check_room(layout, dtype, plan, resident, kept));
    set_bytes_of_reading(static_cast<std::uint64_t>(weights::Arena::bytes_of(layout, dtype)));
    EVALCAR_ASSIGN_OR_RETURN(auto read, weights::read_shadow(files, plan, layout, dtype, device_,
                                                             threads_, own.get_token()));
    if (device_.is_cpu()) {  // as Engine::load() does
      EVALCAR_ASSIGN_OR_RETURN(const auto assignment, weights::assign(plan, layout));
      read.arena.make_halves(weights::stored_as_bfloat16(plan, layout, assignment),
                             kernels::has_tile_unit(), host_cache_budget().now);
    }
    return read;
  });
  Status done;
  if (!shadow.has_value()) done = std::move(shadow).error();
  before.reset();
  const std::scoped_lock lock(mutex_);
  reading_ = false;
  bytes_of_reading_ = 0;
  given_up_ = false;
  if (own.stop_requested() && done.has_value()) {
    done = make_error(ErrorCode::kCancelled, "stopped while reading weights ahead");
  }
  if (done.has_value()) {
    kept_.emplace(std::move(shadow).value());
  } else if (shadow.has_value()) {
    shadow = done.error();  // its memory, before anybody hears that this ended
  }
  ended_.notify_all();
  return done;
}

std::optional<weights::Shadow> Prefetch::take(const FileSystem& files, const checkpoint::Plan& plan,
                                              const weights::WeightLayout& layout,
                                              at::ScalarType dtype) {
  std::optional<weights::Shadow> taken;
  {
    const std::scoped_lock lock(mutex_);
    taken = std::exchange(kept_, std::nullopt);
  }
  if (!taken || weights::is_current(*taken, files, plan, layout, dtype, device_)) return taken;
  const bool of_others = taken->plan.files.empty() || plan.files.empty() ||
                         taken->plan.files.front().path != plan.files.front().path;
  const std::scoped_lock lock(mutex_);
  if (of_others && !reading_) kept_ = std::move(taken);  // its turn may yet come
  return std::nullopt;
}

bool Prefetch::drop(std::chrono::milliseconds patience, bool again) {
  std::unique_lock lock(mutex_);
  bool dropped = kept_.has_value();
  kept_.reset();
  if (!reading_) return dropped;
  stop_.request_stop();
  if (given_up_ && !again) return dropped;
  given_up_ = !ended_.wait_for(lock, patience, [this] { return !reading_; });
  return !given_up_ || dropped;
}

void Prefetch::set_bytes_of_reading(std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  bytes_of_reading_ = bytes;
}

std::uint64_t Prefetch::bytes() {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t kept = kept_ ? static_cast<std::uint64_t>(kept_->arena.bytes()) : 0;
  return kept + bytes_of_reading_;
}

// A GPU's memory is this process's alone, up to its share; the host's belongs to everybody: half of
// what is free stays so.
Status Prefetch::check_room(const weights::WeightLayout& layout, at::ScalarType dtype,
                            const checkpoint::Plan& plan, std::uint64_t resident,
                            std::uint64_t kept) const {
  const auto arena = static_cast<std::uint64_t>(weights::Arena::bytes_of(layout, dtype));
  const std::uint64_t staging = weights::staging_bytes(plan, device_, threads_);
  const std::uint64_t host = free_host_memory() / 2;
  const std::uint64_t halves = dtype == at::kFloat ? arena / 2 : 0;  // Arena::make_halves()
  const std::uint64_t of_host = staging + (device_.is_cpu() ? arena + halves : 0);
  if (of_host > host) return no_room(of_host, "machine", host);
  if (device_.is_cpu()) return {};
  // Where nothing is loaded yet, what is read will be.
  const GpuMemory gpu = gpu_memory(device_, utilization_, resident > 0 ? resident : arena);
  if (!has_room_for(arena, gpu))  // it would have to go before anything is computed
    return make_error(ErrorCode::kUnavailable, "no room beside what is evaluated: of the GPU's " +
                                                   gib(gpu.total) + " another " + gib(arena) +
                                                   " would leave keys and values too little");
  const std::uint64_t device = free_share(gpu) + kept;
  const std::uint64_t needed = arena + weights::casting_bytes(plan, dtype, device_, threads_);
  return needed > device ? no_room(needed, "GPU", device) : Status();
}

}  // namespace evalcar::engine
