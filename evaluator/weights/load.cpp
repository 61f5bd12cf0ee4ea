#include "evaluator/weights/load.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "evaluator/weights/finite.h"
#include "evaluator/weights/staging.h"
#include "evaluator/weights/torch_error.h"

namespace evalcar::weights {
namespace {

constexpr std::size_t kNamesInMessage = 8;
// Read in one go: small enough that a stop and the progress need not wait for a table of gigabytes,
// large enough that a tensor stored transposed is still read in long runs.
constexpr std::uint64_t kPartBytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t kStagedPartBytes = kPartBytes / 2;  // of which a thread may hold two
// A tensor of more than this share of all bytes, divided by the threads, is read first: begun last,
// it would be waited for by all.
constexpr std::uint64_t kLargeShare = 4;
constexpr std::chrono::milliseconds kProgressPause{100};

// What a thread reads at once of a tensor that is not read into its place.
std::uint64_t staged_part(const checkpoint::Plan& plan) {
  std::uint64_t largest = 0;
  for (const auto& tensor : plan.tensors) largest = std::max(largest, tensor.bytes());
  return std::min(largest, kStagedPartBytes);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesInMessage; ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesInMessage)
    text += " and " + std::to_string(names.size() - kNamesInMessage) + " more";
  return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

at::ScalarType scalar_type(checkpoint::DType dtype) {
  switch (dtype) {
    case checkpoint::DType::kFloat16:
      return at::kHalf;
    case checkpoint::DType::kBFloat16:
      return at::kBFloat16;
    case checkpoint::DType::kFloat64:
      return at::kDouble;
    default:
      return at::kFloat;
  }
}

// Everything that is wrong with a set of tensors, told at once.
struct Complaints {
  std::vector<std::string> missing, extra, twice, misshapen;

  bool empty() const {
    return missing.empty() && extra.empty() && twice.empty() && misshapen.empty();
  }
  Error error() const {
    std::string text = "the checkpoint does not hold this model's weights:";
    if (!missing.empty())
      text += " " + std::to_string(missing.size()) + " missing (" + listed(missing) + ");";
    if (!extra.empty())
      text +=
          " " + std::to_string(extra.size()) + " not known to the model (" + listed(extra) + ");";
    if (!twice.empty()) text += " there twice (" + listed(twice) + ");";
    if (!misshapen.empty()) text += " of a wrong shape (" + listed(misshapen) + ");";
    text.pop_back();
    return make_error(ErrorCode::kCorruption, text);
  }
};

// One run of load(): worker threads take tensors from a counter; the first error stops them all.
class Loading {
 public:
  Loading(const checkpoint::Plan& plan, const WeightLayout& layout, const Assignment& assignment,
          const checkpoint::PlanReader& reader, Arena& arena)
      : plan_(plan),
        layout_(layout),
        assignment_(assignment),
        reader_(reader),
        arena_(arena),
        digests_(plan.tensors.size()),
        order_(plan.tensors.size()) {
    const at::Device device = arena.device();
    if (!device.is_cpu()) {
      stream_ = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    }
  }

  Status run(int threads, const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
             const std::stop_token& stop) {
    running_ = std::clamp<int>(threads, 1, 16);
    set_order(static_cast<std::uint64_t>(running_));
    {
      std::vector<std::jthread> workers;
      start(workers, running_);
      if (workers.empty())
        return make_error(ErrorCode::kUnavailable, "no thread could be started to read weights");
      watch(on_progress, stop);
    }
    if (error_) return *error_;
    if (on_progress) on_progress(plan_.bytes(), plan_.bytes());
    return {};
  }

  std::vector<checkpoint::TensorDigest>& digests() { return digests_; }

 private:
  // As many as a limit on threads allows.
  void start(std::vector<std::jthread>& workers, int count) {
    try {
      for (int i = 0; i < count; ++i) workers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      const std::scoped_lock lock(mutex_);
      running_ -= count - static_cast<int>(workers.size());
    }
  }

  // As the plan has them, which is the files' order, but for those that are to be begun with.
  void set_order(std::uint64_t threads) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const std::uint64_t large = plan_.bytes() / (kLargeShare * threads);
    std::stable_partition(order_.begin(), order_.end(),
                          [&](std::size_t index) { return plan_.tensors[index].bytes() > large; });
  }

  void work() {
    const c10::InferenceMode inference;
    const c10::OptionalStreamGuard stream(stream_);
    Staging staging(arena_.device(), staged_part(plan_));
    while (!failed_.load()) {
      const std::size_t turn = next_.fetch_add(1);
      if (turn >= order_.size()) break;
      const std::size_t index = order_[turn];
      const Status status = caught("copying " + plan_.tensors[index].name + " to the device",
                                   [&] { return load_one(index, staging); });
      if (!status) {
        fail(status.error());
        break;
      }
    }
    const Status status = caught("copying weights to the device", [&]() -> Status {
      staging.finish();
      return {};
    });
    if (!status) fail(status.error());
    const std::scoped_lock lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  // The calling thread reports progress and passes a stop on, until the workers are through.
  void watch(const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
             const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kProgressPause, [this] { return running_ == 0; })) {
      lock.unlock();
      if (stop.stop_requested())
        fail(make_error(ErrorCode::kCancelled, "stopped while loading weights"));
      if (on_progress) on_progress(done_bytes_.load(), plan_.bytes());
      lock.lock();
    }
  }

  void fail(Error error) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_.store(true);
  }

  static Status caught(const std::string& doing, const auto& work) {
    try {
      return work();
    } catch (const c10::Error& error) {
      return torch_error(doing, error.what_without_backtrace());
    } catch (const std::bad_alloc&) {
      return make_error(ErrorCode::kUnavailable, "out of memory while " + doing);
    }
  }

  // Reads, hashes and checks a tensor part by part. Where the arena holds the stored dtype in host
  // memory, the file is read straight into it.
  Status load_one(std::size_t index, Staging& staging) {
    const checkpoint::TensorPlan& tensor = plan_.tensors[index];
    const auto& target = assignment_.targets[index];
    const at::ScalarType dtype = scalar_type(tensor.dtype);
    const at::Tensor place = target.tie ? at::Tensor() : place_of(layout_.sources[target.index]);
    const bool in_place = place.defined() && place.is_cpu() && place.scalar_type() == dtype;
    const std::size_t element = checkpoint::dtype_size(tensor.dtype);
    Sha256 hash;
    std::uint64_t done = 0;  // elements
    for (const checkpoint::Box& box :
         checkpoint::row_major_boxes(tensor, in_place ? kPartBytes : kStagedPartBytes)) {
      if (failed_.load()) return {};  // what failed, or the stop, is told by who saw it
      const std::uint64_t count = box.elements();
      const std::span<std::byte> part =
          in_place ? std::span(static_cast<std::byte*>(place.data_ptr()) + done * element,
                               count * element)
                   : staging.next(count * element);
      EVALCAR_RETURN_IF_ERROR(reader_.read_box(index, box, part));
      hash.update(part);
      if (const auto bad = first_not_finite(part, tensor.dtype))
        return make_error(ErrorCode::kCorruption,
                          tensor.name + ": element " + std::to_string(done + *bad) +
                              " is NaN or infinite: the weights are broken (a diverged training?)");
      if (!in_place && place.defined())
        staging.copy_to(
            place.narrow(0, static_cast<std::int64_t>(done), static_cast<std::int64_t>(count)),
            dtype);
      done += count;
      done_bytes_.fetch_add(part.size());
    }
    digests_[index] = {tensor.name, tensor.dtype, tensor.shape, to_hex(hash.finish())};
    return {};
  }

  at::Tensor place_of(const SourceTensor& source) const {
    return arena_.tensor(source.resident)
        .view({-1})
        .narrow(0, source.offset, element_count(source.shape));
  }

  const checkpoint::Plan& plan_;
  const WeightLayout& layout_;
  const Assignment& assignment_;
  const checkpoint::PlanReader& reader_;
  Arena& arena_;
  std::optional<c10::Stream> stream_;              // of the calling thread; threads copy on it, too
  std::vector<checkpoint::TensorDigest> digests_;  // each element written by one worker
  std::vector<std::size_t> order_;                 // indices into the plan's tensors
  std::atomic<std::size_t> next_ = 0;              // into order_
  std::atomic<std::uint64_t> done_bytes_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  // guards running_ and error_
  std::condition_variable changed_;
  int running_ = 0;
  std::optional<Error> error_;
};

// The checksums that the files state, where they are not known from reading the tensors. Told at
// most every kProgressPause.
Status verify(const checkpoint::PlanReader& reader, std::uint64_t before, int threads,
              const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
              const std::stop_token& stop) {
  const std::uint64_t total = before + reader.unverified_bytes();
  auto told = std::chrono::steady_clock::now();
  EVALCAR_RETURN_IF_ERROR(reader.verify_checksums(
      threads,
      [&](std::uint64_t done) {
        const auto now = std::chrono::steady_clock::now();
        if (!on_progress || now - told < kProgressPause) return;
        told = now;
        on_progress(before + done, total);
      },
      stop));
  if (on_progress && total > before) on_progress(total, total);
  return {};
}

// A tied tensor that was saved on its own must hold the values of the one it is tied to.
Status check_ties(const WeightLayout& layout, const Assignment& assignment,
                  const std::vector<checkpoint::TensorDigest>& digests) {
  for (std::size_t i = 0; i < digests.size(); ++i) {
    if (!assignment.targets[i].tie) continue;
    const TiedTensor& tie = layout.ties[assignment.targets[i].index];
    const auto original = std::ranges::find_if(digests, [&](const auto& digest) {
      return layout.canonical_name(digest.name) == tie.same_as;
    });
    if (original->sha256 != digests[i].sha256)
      return make_error(ErrorCode::kCorruption,
                        digests[i].name + " differs from " + original->name +
                            ", but the configuration ties them (tie_word_embeddings)");
  }
  return {};
}

}  // namespace

Result<Assignment> assign(const checkpoint::Plan& plan, const WeightLayout& layout) {
  std::unordered_set<std::string> stored;
  for (const auto& tensor : plan.tensors) stored.insert(layout.canonical_name(tensor.name));
  std::unordered_map<std::string, Assignment::Target> expected;
  std::unordered_map<std::string, const std::vector<std::int64_t>*> shapes;
  for (std::size_t i = 0; i < layout.sources.size(); ++i) {
    expected[layout.sources[i].name] = {i, false};
    shapes[layout.sources[i].name] = &layout.sources[i].shape;
  }
  for (std::size_t i = 0; i < layout.ties.size(); ++i) {
    const TiedTensor& tie = layout.ties[i];
    shapes[tie.name] = shapes.at(tie.same_as);
    // Some writers keep one name of two that share their storage, whichever it is.
    const bool alone = stored.contains(tie.name) && stored.insert(tie.same_as).second;
    expected[tie.name] = alone ? expected.at(tie.same_as) : Assignment::Target{i, true};
  }
  Assignment assignment;
  Complaints complaints;
  std::unordered_map<std::string, std::string> seen;  // canonical name → stored name
  for (const auto& tensor : plan.tensors) {
    const std::string name = layout.canonical_name(tensor.name);
    const auto found = expected.find(name);
    if (found == expected.end()) {
      complaints.extra.push_back(tensor.name);
      continue;
    }
    if (!is_float_dtype(tensor.dtype))
      return make_error(ErrorCode::kUnsupported,
                        tensor.name + " is stored as " +
                            std::string(checkpoint::dtype_name(tensor.dtype)) +
                            "; weights must be float32, bfloat16, float16 or float64");
    const auto [other, fresh] = seen.emplace(name, tensor.name);
    if (!fresh) complaints.twice.push_back(other->second + " and " + tensor.name);
    if (tensor.shape != *shapes.at(name))
      complaints.misshapen.push_back(tensor.name + " is " + shape_text(tensor.shape) +
                                     ", expected " + shape_text(*shapes.at(name)));
    assignment.targets.push_back(found->second);
  }
  for (const auto& source : layout.sources) {
    if (!stored.contains(source.name)) complaints.missing.push_back(source.name);
  }
  if (!complaints.empty()) return complaints.error();
  return assignment;
}

std::vector<bool> stored_as_bfloat16(const checkpoint::Plan& plan, const WeightLayout& layout,
                                     const Assignment& assignment) {
  std::vector<bool> narrow(layout.residents.size(), true);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const Assignment::Target& target = assignment.targets[i];
    if (!target.tie && plan.tensors[i].dtype != checkpoint::DType::kBFloat16)
      narrow[layout.sources[target.index].resident] = false;
  }
  return narrow;
}

std::uint64_t staging_bytes(const checkpoint::Plan& plan, at::Device device, int threads) {
  return static_cast<std::uint64_t>(threads) * Staging::bytes(device, staged_part(plan));
}

int threads_within(const checkpoint::Plan& plan, at::Device device, int most, std::uint64_t bytes) {
  int threads = most;
  while (threads > 1 && staging_bytes(plan, device, threads) > bytes) --threads;
  return threads;
}

std::uint64_t casting_bytes(const checkpoint::Plan& plan, at::ScalarType dtype, at::Device device,
                            int threads) {
  if (device.is_cpu()) return 0;
  const bool casts = std::ranges::any_of(
      plan.tensors, [&](const auto& tensor) { return scalar_type(tensor.dtype) != dtype; });
  return casts ? static_cast<std::uint64_t>(threads) * staged_part(plan) : 0;
}

Result<LoadReport> load(const FileSystem& files, const checkpoint::Plan& plan,
                        const WeightLayout& layout, const Assignment& assignment, Arena& arena,
                        int threads,
                        const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
                        std::stop_token stop) {
  EVALCAR_ASSIGN_OR_RETURN(const auto reader, checkpoint::PlanReader::open(files, plan));
  Loading loading(plan, layout, assignment, reader, arena);
  EVALCAR_RETURN_IF_ERROR(loading.run(threads, on_progress, stop));
  EVALCAR_RETURN_IF_ERROR(verify(reader, plan.bytes(), threads, on_progress, stop));
  EVALCAR_RETURN_IF_ERROR(reader.verify_unchanged());
  EVALCAR_RETURN_IF_ERROR(check_ties(layout, assignment, loading.digests()));
  return LoadReport{.weights_sha256 = checkpoint::weights_sha256(loading.digests()),
                    .tensors = plan.tensors.size(),
                    .bytes = plan.bytes(),
                    .digests = std::move(loading.digests())};
}

}  // namespace evalcar::weights
