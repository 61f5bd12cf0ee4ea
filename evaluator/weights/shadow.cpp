#include "evaluator/weights/shadow.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>

#include "store/checkpoint/same_plan.h"

namespace evalcar::weights {
namespace {

// A stream of its own for this thread, while it lives. Memory that the allocator hands out may
// still be in use by what was enqueued before, on the stream that all else runs on: so the new one
// waits for that much of it.
class OwnStream {
 public:
  explicit OwnStream(at::Device device) {
    if (device.is_cpu()) return;
    const c10::impl::VirtualGuardImpl streams(device.type());
    const c10::Stream common = streams.getStream(device);
    const c10::Stream own = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    c10::Event enqueued(device.type());
    enqueued.record(common);
    enqueued.block(own);
    guard_.reset_stream(own);
  }

 private:
  c10::OptionalStreamGuard guard_;
};

}  // namespace

Result<Shadow> read_shadow(const FileSystem& files, const checkpoint::Plan& plan,
                           const WeightLayout& layout, at::ScalarType dtype, at::Device device,
                           int threads, std::stop_token stop) {
  EVALCAR_ASSIGN_OR_RETURN(const auto assignment, assign(plan, layout));
  Arena arena(layout, dtype, device);
  const OwnStream stream(device);
  EVALCAR_ASSIGN_OR_RETURN(LoadReport report, load(files, plan, layout, assignment, arena, threads,
                                                   nullptr, std::move(stop)));
  return Shadow{std::move(arena), layout, plan, std::move(report)};
}

bool is_current(const Shadow& shadow, const FileSystem& files, const checkpoint::Plan& plan,
                const WeightLayout& layout, at::ScalarType dtype, at::Device device) {
  if (!shadow.arena.fits(layout, dtype, device) || shadow.layout != layout) return false;
  if (!checkpoint::is_same_plan(shadow.plan, plan)) return false;
  const auto reader = checkpoint::PlanReader::open(files, plan);
  return reader.has_value() && reader->verify_unchanged().has_value();
}

}  // namespace evalcar::weights
