#include "store/checkpoint/merge_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include "store/base/hash.h"
#include "store/checkpoint/safetensors.h"
#include "store/checkpoint/tied_names.h"

namespace evalcar::checkpoint {
namespace {

/// Between two looks at whether to stop.
constexpr std::uint64_t kCopyBytes = std::uint64_t{16} << 20U;
constexpr std::uint64_t kBufferBytes = std::uint64_t{1} << 20U;

}  // namespace

void StreamHash::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t take = std::min(bytes.size(), kBlock - rest_.size());
    if (take == kBlock) {
      blocks_.push_back(xxh3_64(bytes.first(take)));
    } else {
      rest_.insert(rest_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(take));
      if (rest_.size() == kBlock) {
        blocks_.push_back(xxh3_64(rest_));
        rest_.clear();
      }
    }
    bytes = bytes.subspan(take);
  }
}

TieCheck::TieCheck(const Plan& plan, const std::optional<DType>& cast) {
  std::map<std::pair<DType, std::vector<std::int64_t>>, Alike> alike;
  bool any = false;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& tensor = plan.tensors[i];
    const bool embedding = may_be_tied_embedding(tensor.name);
    const bool head = may_be_output_head(tensor.name);
    if (!embedding && !head) continue;
    Alike& those = alike[{output_dtype(tensor, cast), tensor.shape}];
    if (embedding) those.embeddings.push_back(i);
    if (head) those.heads.push_back(i);
    any = any || embedding;
  }
  if (!any) return;
  for (auto& [key, those] : alike) {
    if (those.heads.empty()) continue;
    if (those.embeddings.empty()) {
      differing_.insert(differing_.end(), those.heads.begin(), those.heads.end());
      continue;
    }
    for (const std::size_t tensor : those.heads) hashes_[tensor];
    for (const std::size_t tensor : those.embeddings) hashes_[tensor];
    alike_.push_back(std::move(those));
  }
}

void TieCheck::saw(std::size_t tensor, std::span<const std::byte> bytes) {
  if (const auto found = hashes_.find(tensor); found != hashes_.end()) found->second.update(bytes);
}

std::vector<std::size_t> TieCheck::differing_heads() const {
  std::vector<std::size_t> found = differing_;
  for (const Alike& those : alike_) {
    std::set<StreamHash> embeddings;
    for (const std::size_t tensor : those.embeddings) embeddings.insert(hashes_.at(tensor));
    for (const std::size_t head : those.heads) {
      if (!embeddings.contains(hashes_.at(head))) found.push_back(head);
    }
  }
  std::ranges::sort(found);
  return found;
}

std::vector<SafetensorsTensor> tensors_of(const Plan& plan, const MergedFile& file,
                                          const std::optional<DType>& cast) {
  std::vector<SafetensorsTensor> tensors;
  std::uint64_t position = 0;
  for (const std::size_t i : file.tensors) {
    const TensorPlan& tensor = plan.tensors[i];
    const std::uint64_t end = position + output_bytes(tensor, cast);
    tensors.push_back({tensor.name, output_dtype(tensor, cast), tensor.shape, position, end});
    position = end;
  }
  return tensors;
}

WeightsWriter::WeightsWriter(FileSystem& files, const MergeRequest& request,
                             const MergeSource& source)
    : files_(files), request_(request), source_(source), ties_(*source.plan, request.dtype) {}

std::vector<CopyRange> WeightsWriter::ranges_of(std::size_t tensor) const {
  const TensorPlan& planned = source_.plan->tensors[tensor];
  if (source_.readers.size() != 1 || output_dtype(planned, request_.dtype) != planned.dtype ||
      ties_.needs(tensor)) {
    return {};
  }
  return ranges_to_copy(*source_.plan, planned);
}

Result<std::string> WeightsWriter::header_of(const MergedFile& file) const {
  const auto tensors = tensors_of(*source_.plan, file, request_.dtype);
  CopyRange largest;
  std::uint64_t largest_position = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::uint64_t within = tensors[i].begin;
    for (const CopyRange& range : ranges_of(file.tensors[i])) {
      if (range.bytes > largest.bytes) {
        largest = range;
        largest_position = within;
      }
      within += range.bytes;
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(std::string header,
                           make_safetensors_header(tensors, {{"format", "pt"}}));
  // Of one file the others mostly follow. Not only where blocks can be shared: the same input gives
  // the same bytes on every file system.
  if (largest.bytes > 0) align_header(header, largest_position, largest.offset);
  return header;
}

Status WeightsWriter::write(const MergedFile& file, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string header, header_of(file));
  EVALCAR_ASSIGN_OR_RETURN(auto created, files_.create(path, 0644));
  MergeOutput out(std::move(created));
  EVALCAR_RETURN_IF_ERROR(out.append(header));
  readahead_ = readahead_of(file, path);
  std::vector<MergeChunk> chunks;
  for (const std::size_t i : file.tensors) {
    const auto ranges = copies_ ? ranges_of(i) : std::vector<CopyRange>();
    if (!ranges.empty()) {
      EVALCAR_RETURN_IF_ERROR(read_and_write(chunks, out));
      chunks.clear();
      EVALCAR_ASSIGN_OR_RETURN(const bool copied, copy(ranges, out));
      if (copied) continue;
      copies_ = false;
    }
    for (Box& box : merge_boxes(source_.plan->tensors[i])) chunks.push_back({i, std::move(box)});
  }
  EVALCAR_RETURN_IF_ERROR(read_and_write(chunks, out));
  return out.finish();
}

CopyReadahead WeightsWriter::readahead_of(const MergedFile& file, const std::string& path) const {
  const auto type = files_.file_system_type(path);
  if (!copies_ || !type.has_value() || !copies_by_reading(*type)) return {};
  std::vector<CopyRange> all;
  for (const std::size_t i : file.tensors) {
    const auto ranges = ranges_of(i);
    all.insert(all.end(), ranges.begin(), ranges.end());
  }
  return {std::move(all), [this](std::size_t index) -> const ReadableFile& {
            return source_.readers[0]->file(index);
          }};
}

Status WeightsWriter::read_and_write(const std::vector<MergeChunk>& chunks, MergeOutput& out) {
  if (chunks.empty()) return {};
  std::size_t turn = 0;
  return run_merge_pipeline(source_, chunks, request_.threads,
                            [&](std::span<const std::byte> bytes) -> Status {
                              EVALCAR_RETURN_IF_ERROR(out.append(bytes));
                              ties_.saw(chunks[turn++].tensor, bytes);
                              return wrote(bytes.size());
                            });
}

Result<bool> WeightsWriter::copy(const std::vector<CopyRange>& ranges, MergeOutput& out) {
  bool any = false;
  for (const CopyRange& range : ranges) {
    CopyRange left = range;
    while (left.bytes > 0) {
      // What follows the first step begins at a block, if header_of() could arrange it.
      const std::uint64_t to_block = kSharedBlockBytes - left.offset % kSharedBlockBytes;
      const std::uint64_t step =
          std::min(left.bytes, to_block < kSharedBlockBytes ? to_block : kCopyBytes);
      const ReadableFile& file = source_.readers[0]->file(left.file);
      readahead_.before_copying(step);
      EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t n, out.append_copy_of(file, left.offset, step));
      if (n == 0 && !any) return false;
      if (n == 0) break;
      any = true;
      left.offset += n;
      left.bytes -= n;
      EVALCAR_RETURN_IF_ERROR(wrote(n));
    }
    EVALCAR_RETURN_IF_ERROR(append_by_hand(left, out));
  }
  return true;
}

/// What was not copied though something before it was: the source ended, and this says so, or the
/// file system is inconstant.
Status WeightsWriter::append_by_hand(const CopyRange& range, MergeOutput& out) {
  std::vector<std::byte> buffer;
  for (std::uint64_t done = 0; done < range.bytes; done += buffer.size()) {
    buffer.resize(static_cast<std::size_t>(std::min(kBufferBytes, range.bytes - done)));
    EVALCAR_RETURN_IF_ERROR(
        source_.readers[0]
            ->file(range.file)
            .read_exactly_at(range.offset + done, buffer, source_.plan->files[range.file].path));
    EVALCAR_RETURN_IF_ERROR(out.append(buffer));
    EVALCAR_RETURN_IF_ERROR(wrote(buffer.size()));
  }
  return {};
}

Status WeightsWriter::wrote(std::uint64_t bytes) {
  bytes_ += bytes;
  if (request_.on_progress) request_.on_progress(bytes_);
  if (request_.cancelled != nullptr && request_.cancelled->load()) {
    return make_error(ErrorCode::kCancelled, "stopped on request");
  }
  return {};
}

std::vector<std::string> WeightsWriter::differing_heads() const {
  std::vector<std::string> names;
  for (const std::size_t head : ties_.differing_heads())
    names.push_back(source_.plan->tensors[head].name);
  return names;
}

}  // namespace evalcar::checkpoint
