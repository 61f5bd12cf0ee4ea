#include "evaluator/kernels/parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <atomic>
#include <optional>

namespace evalcar::kernels {
namespace {

// A part is what is left, shared among so many times the threads: the first are few and large, the
// last as small as may be, so that no thread waits long for one on a core that others use, too.
constexpr std::int64_t kPartsOfThread = 2;

/// Calls `work` once on each of as many threads, or, where the calling one is of several already,
/// as often on that. libtorch's loop over the elements of a tensor does it: its header for loops of
/// one's own would need its OpenMP at compile time.
class Threads {
 public:
  explicit Threads(std::int64_t count) : count_(count) {
    at::Tensor numbers = at::arange(count, at::TensorOptions().dtype(at::kLong));
    elements_.emplace(at::TensorIterator::nullary_op(numbers));
  }
  std::int64_t count() const { return count_; }
  void run(const std::function<void()>& work) {
    elements_->for_each([&](char**, const std::int64_t*, std::int64_t) { work(); }, 1);
  }

 private:
  std::int64_t count_;
  std::optional<at::TensorIterator> elements_;
};

/// This thread's: making them takes longer than many a part.
struct Kept {
  std::optional<Threads> threads;
  bool running = false;
};

/// Marks the kept ones as running while it lives.
class Running {
 public:
  explicit Running(Kept& kept) : kept_(kept) { kept_.running = true; }
  ~Running() { kept_.running = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Kept& kept_;
};

}  // namespace

void in_parallel(std::int64_t count, std::int64_t least,
                 const std::function<void(std::int64_t first, std::int64_t count)>& work) {
  if (count == 0) return;
  thread_local Kept kept;
  const std::int64_t all = at::get_num_threads();
  least = std::clamp<std::int64_t>(least, 1, count);
  const std::int64_t threads = std::min(all, count / least);
  if (threads <= 1 || kept.running || at::in_parallel_region()) return work(0, count);
  const auto part_from = [&](std::int64_t first) {
    const std::int64_t left = count - first, parts = threads * kPartsOfThread;
    return std::min(left, std::max(least, (left + parts - 1) / parts));
  };
  std::atomic<std::int64_t> next = 0, at_work = 0;
  const Running running(kept);
  if (!kept.threads || kept.threads->count() != all) kept.threads.emplace(all);
  kept.threads->run([&] {
    if (at_work.fetch_add(1) >= threads) return;
    std::int64_t first = next.load();
    while (first < count) {
      const std::int64_t part = part_from(first);
      if (!next.compare_exchange_weak(first, first + part)) continue;
      work(first, part);
      first = next.load();
    }
  });
}

}  // namespace evalcar::kernels
