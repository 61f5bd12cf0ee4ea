#include "evaluator/kernels/parallel.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <array>
#include <optional>

namespace evalcar::kernels {
namespace {

/// A tensor's elements, whose numbers they hold.
struct Elements {
  std::int64_t count = 0;
  std::optional<at::TensorIterator> each;
};

Elements elements_of(std::int64_t count) {
  at::Tensor numbers = at::arange(count, at::TensorOptions().dtype(at::kLong));
  return {count, at::TensorIterator::nullary_op(numbers)};
}

/// Some of them: making them takes longer than many a part, and a model asks for the same few
/// counts again and again.
struct KeptElements {
  static constexpr std::int64_t kLargest = 4096;
  static constexpr std::size_t kKept = 16;

  at::TensorIterator& of(std::int64_t count) {
    auto found = std::ranges::find(places, count, &Elements::count);
    if (found == places.end()) {
      found = places.begin() + static_cast<std::ptrdiff_t>(oldest);
      oldest = (oldest + 1) % kKept;
      *found = elements_of(count);
    }
    return *found->each;
  }

  std::array<Elements, kKept> places;
  std::size_t oldest = 0;
  bool in_use = false;
};

/// Work that asks for parts itself gets others: a place may be another count's by then.
class Use {
 public:
  explicit Use(KeptElements& kept) : kept_(kept) { kept_.in_use = true; }
  ~Use() { kept_.in_use = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  KeptElements& kept_;
};

}  // namespace

// The parts are the elements of a tensor: libtorch's header for loops of one's own would need its
// OpenMP at compile time.
void in_parallel(std::int64_t count, std::int64_t least,
                 const std::function<void(std::int64_t first, std::int64_t count)>& work) {
  if (count == 0) return;
  if (count == 1) return work(0, 1);
  const auto share = [&](at::TensorIterator& each) {
    each.for_each(
        [&](char** data, const std::int64_t*, std::int64_t part) {
          work(*reinterpret_cast<const std::int64_t*>(data[0]), part);
        },
        std::max<std::int64_t>(1, least));
  };
  thread_local KeptElements kept;
  if (count > KeptElements::kLargest || kept.in_use) {
    Elements own = elements_of(count);
    share(*own.each);
  } else {
    const Use use(kept);
    share(kept.of(count));
  }
}

}  // namespace evalcar::kernels
