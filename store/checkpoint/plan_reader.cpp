// Reads boxes of tensors out of their pieces. A piece may lie in its file in any stride order (a
// transposed tensor is stored transposed), so a region is first brought into the file's own order;
// then what is contiguous on both sides is read straight into place, and the rest goes through a
// small buffer. Every byte of the file is read at most once, in large reads but where a box takes a
// part of every run (dimensions that are exchanged).
#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "store/checkpoint/averaged.h"
#include "store/checkpoint/convert.h"
#include "store/checkpoint/low_rank.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/plan.h"
#include "store/checkpoint/record_checksums.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;
/// From here on a pread per run costs less than copying through the buffer.
constexpr std::size_t kDirectBytes = std::size_t{128} << 10U;
/// More bytes than these between two runs are not worth reading only to skip them.
constexpr std::size_t kGapBytes = std::size_t{4} << 10U;

struct Dimension {
  std::size_t size = 0;
  std::size_t file_stride = 0;  // bytes
  std::size_t out_stride = 0;   // bytes
};

/// What a piece and a box have in common. Offsets in bytes, in the file and in the box.
struct Region {
  std::uint64_t file_offset = 0;
  std::size_t out_offset = 0;
  std::size_t bytes = 0;  // 0: nothing, and the rest means nothing
  std::vector<Dimension> dimensions;
};

Region common_region(const Piece& piece, const Box& box, std::size_t element_bytes) {
  const std::vector<std::int64_t> out_strides = contiguous_strides(box.size);
  Region region{piece.file_offset, 0, element_bytes, {}};
  region.dimensions.resize(box.size.size());
  for (std::size_t d = 0; d < box.size.size(); ++d) {
    const std::int64_t begin = std::max(piece.start[d], box.start[d]);
    const std::int64_t end = std::min(piece.start[d] + piece.size[d], box.start[d] + box.size[d]);
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0));
    region.bytes *= size;
    if (size == 0) break;
    Dimension& dimension = region.dimensions[d];
    dimension = {size, static_cast<std::size_t>(piece.stride_elements[d]) * element_bytes,
                 static_cast<std::size_t>(out_strides[d]) * element_bytes};
    region.file_offset +=
        static_cast<std::uint64_t>(begin - piece.start[d]) * dimension.file_stride;
    region.out_offset += static_cast<std::size_t>(begin - box.start[d]) * dimension.out_stride;
  }
  return region;
}

/// A strided copy from a file into memory; dimensions in descending order of file_stride.
class RegionCopy {
 public:
  RegionCopy(const ReadableFile& file, const std::string& path, std::size_t element_bytes,
             std::vector<Dimension> dimensions)
      : file_(file),
        path_(path),
        element_bytes_(element_bytes),
        dimensions_(std::move(dimensions)) {
    simplify();
  }

  Status run(std::uint64_t file_offset, std::byte* out) { return copy(0, file_offset, out); }

 private:
  void simplify() {
    std::erase_if(dimensions_, [](const Dimension& d) { return d.size == 1; });
    std::stable_sort(
        dimensions_.begin(), dimensions_.end(),
        [](const Dimension& a, const Dimension& b) { return a.file_stride > b.file_stride; });
    std::vector<Dimension> merged;
    for (const Dimension& d : dimensions_) {
      if (!merged.empty() && merged.back().file_stride == d.size * d.file_stride &&
          merged.back().out_stride == d.size * d.out_stride) {
        merged.back() = {merged.back().size * d.size, d.file_stride, d.out_stride};
      } else {
        merged.push_back(d);
      }
    }
    dimensions_ = std::move(merged);
  }

  /// Bytes from the first to behind the last element of dimensions `level`…
  std::size_t span_bytes(std::size_t level) const {
    std::size_t bytes = element_bytes_;
    for (std::size_t d = level; d < dimensions_.size(); ++d) {
      bytes += (dimensions_[d].size - 1) * dimensions_[d].file_stride;
    }
    return bytes;
  }

  Status copy(std::size_t level, std::uint64_t file_offset, std::byte* out) {
    const std::size_t left = dimensions_.size() - level;
    if (left == 0) {
      return file_.read_exactly_at(file_offset, std::span(out, element_bytes_), path_);
    }
    const Dimension& d = dimensions_[level];
    if (left == 1 && d.file_stride == element_bytes_ && d.out_stride == element_bytes_) {
      return file_.read_exactly_at(file_offset, std::span(out, d.size * element_bytes_), path_);
    }
    const std::size_t inner_span = span_bytes(level + 1);
    const Dimension& last = dimensions_.back();
    const bool long_runs = left > 1 && last.file_stride == element_bytes_ &&
                           last.out_stride == element_bytes_ &&
                           last.size * element_bytes_ >= kDirectBytes;
    if (long_runs || inner_span > kBufferBytes) {
      for (std::size_t i = 0; i < d.size; ++i) {
        EVALCAR_RETURN_IF_ERROR(
            copy(level + 1, file_offset + i * d.file_stride, out + i * d.out_stride));
      }
      return {};
    }
    const bool far_apart = d.file_stride > inner_span + kGapBytes;
    const std::size_t group =
        far_apart ? 1
                  : std::min(d.size, 1 + (kBufferBytes - inner_span) /
                                             std::max<std::size_t>(d.file_stride, 1));
    for (std::size_t first = 0; first < d.size; first += group) {
      const std::size_t count = std::min(group, d.size - first);
      buffer_.resize((count - 1) * d.file_stride + inner_span);
      EVALCAR_RETURN_IF_ERROR(
          file_.read_exactly_at(file_offset + first * d.file_stride, buffer_, path_));
      for (std::size_t i = 0; i < count; ++i) {
        scatter(level + 1, buffer_.data() + i * d.file_stride, out + (first + i) * d.out_stride);
      }
    }
    return {};
  }

  void scatter(std::size_t level, const std::byte* from, std::byte* to) const {
    if (level == dimensions_.size()) {
      std::memcpy(to, from, element_bytes_);
      return;
    }
    const Dimension& d = dimensions_[level];
    if (level + 1 == dimensions_.size()) {
      if (d.file_stride == element_bytes_ && d.out_stride == element_bytes_) {
        std::memcpy(to, from, d.size * element_bytes_);
        return;
      }
      switch (element_bytes_) {  // a constant size makes each copy one move
        case 2:
          return scatter_run<2>(d, from, to);
        case 4:
          return scatter_run<4>(d, from, to);
        case 8:
          return scatter_run<8>(d, from, to);
        default:
          break;
      }
    }
    for (std::size_t i = 0; i < d.size; ++i) {
      scatter(level + 1, from + i * d.file_stride, to + i * d.out_stride);
    }
  }

  template <std::size_t kBytes>
  static void scatter_run(const Dimension& d, const std::byte* from, std::byte* to) {
    for (std::size_t i = 0; i < d.size; ++i) {
      std::memcpy(to + i * d.out_stride, from + i * d.file_stride, kBytes);
    }
  }

  const ReadableFile& file_;
  const std::string& path_;
  std::size_t element_bytes_;
  std::vector<Dimension> dimensions_;
  std::vector<std::byte> buffer_;
};

}  // namespace

struct PlanReader::State {
  Plan plan;
  std::optional<RecordChecksums> checksums;  // of `plan`; fed by the files in `opened`
  std::vector<std::unique_ptr<ReadableFile>> opened;
  const FileSystem* files = nullptr;

  void will_read(const TensorPlan& tensor, const Box& box) const;
  /// The elements of a box, means and updates included.
  Status read_values(const TensorPlan& tensor, const Box& box, std::span<std::byte> out) const;
  /// The elements of a box as the files hold them.
  Status read_stored(const TensorPlan& tensor, const Box& box, std::span<std::byte> out) const;
  /// The same, converted from another type.
  Status read_converted(const TensorPlan& tensor, const Box& box, std::span<std::byte> out) const;
};

PlanReader::PlanReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
PlanReader::PlanReader(PlanReader&&) noexcept = default;
PlanReader& PlanReader::operator=(PlanReader&&) noexcept = default;
PlanReader::~PlanReader() = default;

Result<PlanReader> PlanReader::open(const FileSystem& files, const Plan& plan) {
  auto state = std::make_unique<State>();
  state->plan = plan;
  state->checksums.emplace(state->plan);
  state->files = &files;
  for (const PlanFile& planned : plan.files) {
    EVALCAR_ASSIGN_OR_RETURN(auto file, files.open_readable(planned.path));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file->info());
    if (!info.same_content_identity(planned.identity)) {
      return make_error(ErrorCode::kUnavailable,
                        planned.path + ": is not the file that was planned (rewritten meanwhile)");
    }
    state->opened.push_back(state->checksums->watch(state->opened.size(), std::move(file)));
  }
  return PlanReader(std::move(state));
}

Status PlanReader::read(std::size_t index, std::span<std::byte> out) const {
  if (index >= state_->plan.tensors.size()) {
    return make_error(ErrorCode::kInternal, "tensor index out of range");
  }
  const auto& shape = state_->plan.tensors[index].shape;
  return read_box(index, Box{std::vector<std::int64_t>(shape.size(), 0), shape}, out);
}

Status PlanReader::read_box(std::size_t index, const Box& box, std::span<std::byte> out) const {
  if (index >= state_->plan.tensors.size()) {
    return make_error(ErrorCode::kInternal, "tensor index out of range");
  }
  return state_->read_values(state_->plan.tensors[index], box, out);
}

Status PlanReader::State::read_values(const TensorPlan& tensor, const Box& box,
                                      std::span<std::byte> out) const {
  if (tensor.mean_of != nullptr) {
    return read_mean(
        tensor, box,
        [this](const TensorPlan& member, const Box& part, std::span<std::byte> bytes) {
          return read_values(member, part, bytes);
        },
        out);
  }
  if (tensor.stored_dtype) {
    EVALCAR_RETURN_IF_ERROR(read_converted(tensor, box, out));
  } else {
    EVALCAR_RETURN_IF_ERROR(read_stored(tensor, box, out));
  }
  if (tensor.update == nullptr) return {};
  const auto read = [this](const TensorPlan& factor, const Box& part, std::span<std::byte> bytes) {
    return read_stored(factor, part, bytes);
  };
  return add_low_rank(tensor, box, read, out);
}

Status PlanReader::State::read_stored(const TensorPlan& tensor, const Box& box,
                                      std::span<std::byte> out) const {
  const std::size_t rank = tensor.shape.size();
  const std::size_t element_bytes = dtype_size(tensor.stored_dtype.value_or(tensor.dtype));
  if (box.start.size() != rank || box.size.size() != rank ||
      box.elements() * element_bytes != out.size()) {
    return make_error(ErrorCode::kInternal,
                      "tensor " + quote_name(tensor.name) + ": the buffer does not fit the box");
  }
  if (out.empty()) return {};
  std::size_t copied = 0;
  for (const Piece& piece : tensor.pieces) {
    Region region = common_region(piece, box, element_bytes);
    if (region.bytes == 0) continue;
    copied += region.bytes;
    RegionCopy copy(*opened[piece.file], plan.files[piece.file].path, element_bytes,
                    std::move(region.dimensions));
    EVALCAR_RETURN_IF_ERROR(copy.run(region.file_offset, out.data() + region.out_offset));
  }
  if (copied != out.size()) {
    return make_error(ErrorCode::kInternal, "tensor " + quote_name(tensor.name) +
                                                ": its pieces do not cover the box " +
                                                shape_text(box.start));
  }
  return {};
}

Status PlanReader::State::read_converted(const TensorPlan& tensor, const Box& box,
                                         std::span<std::byte> out) const {
  // In parts of the box, so that the memory beside `out` stays small whatever is asked for.
  const TensorPlan part_of_box{tensor.name, tensor.dtype, box.size, {}, std::nullopt};
  if (part_of_box.bytes() != out.size()) {
    return make_error(ErrorCode::kInternal,
                      "tensor " + quote_name(tensor.name) + ": the buffer does not fit the box");
  }
  std::vector<std::byte> stored;
  std::size_t done = 0;
  for (Box part : row_major_boxes(part_of_box, kBufferBytes)) {
    for (std::size_t d = 0; d < part.start.size(); ++d) part.start[d] += box.start[d];
    const auto elements = static_cast<std::size_t>(part.elements());
    stored.resize(elements * dtype_size(*tensor.stored_dtype));
    EVALCAR_RETURN_IF_ERROR(read_stored(tensor, part, stored));
    const std::size_t bytes = elements * dtype_size(tensor.dtype);
    convert(*tensor.stored_dtype, stored, tensor.dtype, out.subspan(done, bytes));
    done += bytes;
  }
  return {};
}

void PlanReader::will_read(std::size_t index, const Box& box) const {
  if (index < state_->plan.tensors.size()) state_->will_read(state_->plan.tensors[index], box);
}

void PlanReader::State::will_read(const TensorPlan& tensor, const Box& box) const {
  if (box.size.size() != tensor.shape.size()) return;
  if (tensor.mean_of != nullptr) {
    for (const TensorPlan& member : *tensor.mean_of) will_read(member, box);
  }
  const std::size_t element_bytes = dtype_size(tensor.stored_dtype.value_or(tensor.dtype));
  for (const Piece& piece : tensor.pieces) {
    const Region region = common_region(piece, box, element_bytes);
    if (region.bytes == 0) continue;
    std::size_t span = element_bytes;
    for (const Dimension& d : region.dimensions) span += (d.size - 1) * d.file_stride;
    // Not what lies scattered over much that nobody wants now.
    if (span / 2 <= region.bytes) opened[piece.file]->will_read(region.file_offset, span);
  }
}

const ReadableFile& PlanReader::file(std::size_t index) const { return *state_->opened[index]; }

Status PlanReader::verify_unchanged(bool* only_ctime_changed) const {
  if (only_ctime_changed != nullptr) *only_ctime_changed = false;
  for (std::size_t i = 0; i < state_->opened.size(); ++i) {
    const PlanFile& planned = state_->plan.files[i];
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo now, state_->opened[i]->info());
    // The name may be gone (retention): the open file is still the one that was planned. But a name
    // that now leads to another file means that the checkpoint was written anew.
    const auto named = state_->files->info_followed(planned.path);
    if (!now.same_content_identity(planned.identity) ||
        (named.has_value() && !named->same_content_identity(planned.identity))) {
      return make_error(ErrorCode::kUnavailable,
                        planned.path + ": was rewritten while it was read; what was read is void");
    }
    if (only_ctime_changed != nullptr && now.ctime_ns != planned.identity.ctime_ns) {
      *only_ctime_changed = true;
    }
  }
  return {};
}

Status PlanReader::verify_checksums(int threads,
                                    const std::function<void(std::uint64_t)>& on_progress,
                                    const std::stop_token& stop) const {
  return state_->checksums->verify(state_->opened, threads, on_progress, stop);
}

std::uint64_t PlanReader::unverified_bytes() const { return state_->checksums->unseen_bytes(); }

}  // namespace evalcar::checkpoint
