#include "store/checkpoint/diff_plans.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <span>

#include "store/base/helper_threads.h"
#include "store/checkpoint/convert.h"
#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

/// Elements of one read, of either tensor.
constexpr std::uint64_t kChunkElements = std::uint64_t{1} << 18U;

template <typename T>
void widen_integers(std::span<const std::byte> in, std::vector<double>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, in.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<double>(value);
  }
}

/// The elements as float64: of a complex type its real and imaginary parts in turn.
void widen(DType dtype, std::span<const std::byte> in, std::vector<double>& out) {
  const auto convert_from = [&](DType part) {
    out.resize(in.size() / dtype_size(part));
    convert(part, in, DType::kFloat64, std::as_writable_bytes(std::span(out)));
  };
  out.resize(in.size() / dtype_size(dtype));
  switch (dtype) {
    case DType::kComplex32:
      return convert_from(DType::kFloat16);
    case DType::kComplex64:
      return convert_from(DType::kFloat32);
    case DType::kComplex128:
      return convert_from(DType::kFloat64);
    case DType::kInt64:
      return widen_integers<std::int64_t>(in, out);
    case DType::kInt32:
      return widen_integers<std::int32_t>(in, out);
    case DType::kInt16:
      return widen_integers<std::int16_t>(in, out);
    case DType::kInt8:
      return widen_integers<std::int8_t>(in, out);
    case DType::kUInt64:
      return widen_integers<std::uint64_t>(in, out);
    case DType::kUInt32:
      return widen_integers<std::uint32_t>(in, out);
    case DType::kUInt16:
      return widen_integers<std::uint16_t>(in, out);
    case DType::kUInt8:
    case DType::kBool:
      return widen_integers<std::uint8_t>(in, out);
    default:
      return convert_from(dtype);
  }
}

/// Sums over all elements that were added.
struct Sums {
  std::uint64_t elements = 0;
  double max_abs = 0;
  double squares = 0;  // of the differences
  double squares_of_there = 0;
  bool finite = true;  // all differences are

  void add(const std::vector<double>& here, const std::vector<double>& there) {
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (std::isfinite(there[i])) squares_of_there += there[i] * there[i];
      if (here[i] == there[i] || (std::isnan(here[i]) && std::isnan(there[i]))) continue;
      ++elements;
      const double difference = std::abs(here[i] - there[i]);
      if (!std::isfinite(difference)) finite = false;
      max_abs = std::max(max_abs, difference);
      squares += difference * difference;
    }
  }

  /// Of integers that float64 cannot hold.
  template <typename T>
  void add_integers(std::span<const std::byte> here, std::span<const std::byte> there) {
    for (std::size_t at = 0; at < here.size(); at += sizeof(T)) {
      T a;
      T b;
      std::memcpy(&a, here.data() + at, sizeof(T));
      std::memcpy(&b, there.data() + at, sizeof(T));
      const auto value = static_cast<double>(b);
      squares_of_there += value * value;
      if (a == b) continue;
      ++elements;
      const std::uint64_t distance =
          a > b ? static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b)
                : static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a);
      const auto difference = static_cast<double>(distance);
      max_abs = std::max(max_abs, difference);
      squares += difference * difference;
    }
  }

  ValueDifference result() const {
    ValueDifference result{.elements = elements};
    if (!finite) return result;
    result.max_abs = max_abs;
    const double relative = std::sqrt(squares) / std::sqrt(squares_of_there);
    if (std::isfinite(relative)) result.relative_l2 = relative;
    return result;
  }
};

/// What the threads share: the next pair, the progress, the first error.
class DiffJob {
 public:
  using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

  DiffJob(const PlanReader& here_reader, const Plan& here, const PlanReader& there_reader,
          const Plan& there, const Pairs& pairs,
          const std::function<void(std::uint64_t)>& on_progress)
      : here_{here_reader, here},
        there_{there_reader, there},
        pairs_(pairs),
        on_progress_(on_progress),
        results_(pairs.size()) {}

  void work() {
    for (std::size_t i = next_++; i < pairs_.size() && !failed_; i = next_++) {
      Status compared = compare(i);
      if (compared.has_value()) continue;
      const std::scoped_lock lock(mutex_);
      if (!failed_.exchange(true)) error_ = std::move(compared).error();
    }
  }

  Result<std::vector<ValueDifference>> take() {
    if (error_) return *std::move(error_);
    return std::move(results_);
  }

 private:
  struct Side {
    const PlanReader& reader;
    const Plan& plan;

    Status read(std::size_t index, const Box& box, std::vector<std::byte>& bytes) const {
      bytes.resize(box.elements() * dtype_size(plan.tensors[index].dtype));
      return reader.read_box(index, box, bytes);
    }
  };

  Status compare(std::size_t turn) {
    const auto [a, b] = pairs_[turn];
    const TensorPlan& tensor = here_.plan.tensors[a];
    const DType other = there_.plan.tensors[b].dtype;
    std::vector<std::byte> bytes_here;
    std::vector<std::byte> bytes_there;
    std::vector<double> here;
    std::vector<double> there;
    Sums sums;
    for (const Box& box : row_major_boxes(tensor, kChunkElements * dtype_size(tensor.dtype))) {
      if (failed_) return {};
      EVALCAR_RETURN_IF_ERROR(here_.read(a, box, bytes_here));
      EVALCAR_RETURN_IF_ERROR(there_.read(b, box, bytes_there));
      if (tensor.dtype == DType::kInt64 && other == DType::kInt64) {
        sums.add_integers<std::int64_t>(bytes_here, bytes_there);
      } else if (tensor.dtype == DType::kUInt64 && other == DType::kUInt64) {
        sums.add_integers<std::uint64_t>(bytes_here, bytes_there);
      } else {
        widen(tensor.dtype, bytes_here, here);
        widen(other, bytes_there, there);
        sums.add(here, there);
      }
      if (on_progress_) {
        const std::scoped_lock lock(mutex_);
        done_ += bytes_here.size() + bytes_there.size();
        on_progress_(done_);
      }
    }
    results_[turn] = sums.result();
    return {};
  }

  const Side here_;
  const Side there_;
  const Pairs& pairs_;
  const std::function<void(std::uint64_t)>& on_progress_;
  std::vector<ValueDifference> results_;  // each written by one thread
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::uint64_t done_ = 0;      // under mutex_
  std::optional<Error> error_;  // under mutex_
};

bool is_complex(DType dtype) { return numbers_per_element(dtype) == 2; }

}  // namespace

bool is_comparable(DType dtype) { return !is_scaled(dtype); }

Result<std::vector<ValueDifference>> diff_values(
    const FileSystem& files, const Plan& here, const Plan& there,
    const std::vector<std::pair<std::size_t, std::size_t>>& pairs, int threads,
    const std::function<void(std::uint64_t)>& on_progress) {
  for (const auto& [a, b] : pairs) {
    const TensorPlan& first = here.tensors[a];
    const TensorPlan& second = there.tensors[b];
    if (first.shape != second.shape || !is_comparable(first.dtype) ||
        !is_comparable(second.dtype) || is_complex(first.dtype) != is_complex(second.dtype)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "tensor " + quote_name(first.name) + ": values cannot be compared");
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(const PlanReader here_reader, PlanReader::open(files, here));
  EVALCAR_ASSIGN_OR_RETURN(const PlanReader there_reader, PlanReader::open(files, there));
  DiffJob job(here_reader, here, there_reader, there, pairs, on_progress);
  {
    const auto count =
        std::min<std::size_t>(static_cast<std::size_t>(std::clamp(threads, 1, 64)), pairs.size());
    const HelperThreads helpers(count - std::min<std::size_t>(count, 1), [&job] { job.work(); });
    job.work();
  }
  EVALCAR_ASSIGN_OR_RETURN(auto results, job.take());
  EVALCAR_RETURN_IF_ERROR(here_reader.verify_unchanged());
  EVALCAR_RETURN_IF_ERROR(there_reader.verify_unchanged());
  return results;
}

}  // namespace evalcar::checkpoint
