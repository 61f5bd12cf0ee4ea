// A plan says where every byte of every merged tensor lies on disk. Merging, hashing and loading
// all follow one.
//
// A tensor is cut into pieces: a box of the full tensor, and where the elements of that box are in
// a file (offset, strides). The pieces of a tensor tile it exactly once: a gap or an overlap (other
// than a replica, which is dropped when the plan is made) is kCorruption. Boxes come from the
// placements and the mesh in the shards' own metadata, never from a guess.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/hash.h"
#include "store/base/result.h"
#include "store/checkpoint/dtype.h"
#include "store/checkpoint/layout.h"

namespace evalcar::checkpoint {

struct Piece {
  std::size_t file = 0;             ///< index into Plan::files
  std::uint64_t file_offset = 0;    ///< bytes; of the box's first element
  std::vector<std::int64_t> start;  ///< of the box, per dimension of the full tensor
  std::vector<std::int64_t> size;   ///< of the box
  std::vector<std::int64_t>
      stride_elements;  ///< in the file, per dimension; row-major when contiguous
};

struct LowRankUpdate;

struct TensorPlan {
  std::string name;  ///< as stored, without wrappers (tensor_names.h)
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<Piece> pieces;
  std::optional<std::size_t>
      tied_to;  ///< index of the tensor whose very storage this one shares in the files
  /// The elements' type in the files where it is another one: they are converted while they are
  /// read. Strides and sizes of `pieces` count elements, their offsets bytes of this type.
  std::optional<DType> stored_dtype = std::nullopt;
  /// What is added to the elements (in `dtype`) while they are read: LoRA.
  std::shared_ptr<const LowRankUpdate> update = nullptr;
  /// Set: the tensor is the mean of these, which have its shape and dtype, and has no pieces of its
  /// own (averaged.h).
  std::shared_ptr<const std::vector<TensorPlan>> mean_of = nullptr;

  /// Whether the bytes that the pieces name are the tensor's own. Whoever takes bytes by `pieces`
  /// alone has to ask first.
  bool is_stored_as_is() const { return !stored_dtype && update == nullptr && mean_of == nullptr; }

  std::uint64_t elements() const;
  std::uint64_t bytes() const;
};

/// W + scale · B·A, with W [out, in, …], B [out, r], A [r, in, …]; dimensions of B after the second
/// are 1. All three are convertible floating types. low_rank.h says in which arithmetic.
struct LowRankUpdate {
  TensorPlan a;
  TensorPlan b;
  double scale = 0;
  bool transposed = false;    ///< W is [in, out]: W + scale · (B·A)ᵀ
  bool round_update = false;  ///< the update is rounded to W's dtype before it is added
  /// Added to W, and rounded, before this one: of a weight that two modules share.
  std::shared_ptr<const LowRankUpdate> before = nullptr;
};

struct PlanFile {
  std::string path;   ///< as given to the FileSystem
  FileInfo identity;  ///< when the plan was made; checked again after reading
};

/// Bytes of a file whose CRC-32 the file itself states (a storage of a torch.save file).
struct PlanRecord {
  std::size_t file = 0;  ///< index into Plan::files
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;
};

struct Plan {
  Layout layout = Layout::kHuggingFace;
  WeightsKind kind = WeightsKind::kRegular;
  int world_size = 0;
  std::vector<PlanFile> files;
  std::vector<TensorPlan> tensors;  ///< sorted by name in bytes
  std::vector<PlanRecord> records;  ///< every storage that a tensor lies in; none for safetensors
  /// What modules keep beside their weights (get_extra_state(), as TransformerEngine's do): names
  /// as stored, sorted. They are no tensors of the plan.
  std::vector<std::string> extra_states;
  /// What lies beside the model and is no trainer's state as far as can be told: names of trees,
  /// and of numbers and texts among the tensors of a .bin file; sorted. Nothing of them is in the
  /// plan.
  std::vector<std::string> left_out;
  /// The embedding and the output head, which the configuration of an adapter's base ties, are two:
  /// of one or both the adapter has a copy of its own (modules_to_save).
  bool gives_up_tie = false;

  const TensorPlan* find(std::string_view name) const;
  std::uint64_t bytes() const;
};

/// Reads the metadata of one kind of weights in `dir` and makes its plan. kUnavailable (retryable)
/// if it is not complete, kCorruption with file and offset for lies, kUnsupported by name for what
/// is not read.
Result<Plan> make_plan(const FileSystem& files, const std::string& dir, WeightsKind kind,
                       const LayoutOptions& options = {});

/// Checks that the pieces of `tensor` tile it exactly once, and drops replicas (pieces of the very
/// same box). kCorruption names the tensor.
Status check_tiling(TensorPlan& tensor);

/// A box of a tensor. Row-major order over its elements.
struct Box {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> size;
  std::uint64_t elements() const;
};

/// Cuts a tensor into boxes that follow each other in row-major order and hold at most `max_bytes`
/// (at least one element) each: reading them in turn streams the tensor's contiguous bytes in
/// bounded memory. None for an empty tensor.
std::vector<Box> row_major_boxes(const TensorPlan& tensor, std::uint64_t max_bytes);
/// The same of a box; the boxes are in the coordinates of the tensor.
std::vector<Box> row_major_boxes(const Box& whole, std::size_t element_bytes,
                                 std::uint64_t max_bytes);

/// Reads tensors by plan. Thread-safe: several threads may read different tensors at once. Opens
/// each file once.
class PlanReader {
 public:
  /// Opens the plan's files; kUnavailable if one of them is not the file that was planned
  /// (identity).
  static Result<PlanReader> open(const FileSystem& files, const Plan& plan);
  PlanReader(PlanReader&&) noexcept;
  PlanReader& operator=(PlanReader&&) noexcept;
  ~PlanReader();

  /// Fills `out` (exactly plan.tensors[index].bytes() bytes) with the full, contiguous, row-major,
  /// little-endian tensor.
  Status read(std::size_t index, std::span<std::byte> out) const;
  /// The same for a part: `out` gets the elements of `box`, contiguous and row-major.
  Status read_box(std::size_t index, const Box& box, std::span<std::byte> out) const;
  /// A hint that this box is read soon: the disk brings it into the page cache meanwhile.
  void will_read(std::size_t index, const Box& box) const;
  /// plan.files[index], opened, for bytes that are taken as they are (merge_copy.h). What is read
  /// through it counts for verify_checksums().
  const ReadableFile& file(std::size_t index) const;
  /// Checks that no file changed since the plan was made (device, inode, size, mtime): call after
  /// the last read. kUnavailable, naming the file, if one did: what was read must be thrown away. A
  /// ctime that alone differs is told in `only_ctime_changed`.
  Status verify_unchanged(bool* only_ctime_changed = nullptr) const;
  /// Compares the CRC-32 of every record that a tensor of the plan lies in: finds blocks that were
  /// lost by a power cut or by a disk. What was read through this reader is not read again; what
  /// was not (padding, a tensor that nobody wanted) is, so call it after the last read. kCorruption
  /// names file and offset. Does nothing for formats without checksums. `on_progress(bytes_done)`,
  /// of unverified_bytes(), is called on the calling thread after each block that this one read; it
  /// may be empty. kCancelled soon after `stop`: each thread ends after the block it reads.
  Status verify_checksums(int threads, const std::function<void(std::uint64_t)>& on_progress = {},
                          const std::stop_token& stop = {}) const;
  /// Bytes that verify_checksums() would read now.
  std::uint64_t unverified_bytes() const;

 private:
  struct State;
  explicit PlanReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// SHA-256 of one tensor's full bytes, in hexadecimal.
std::string tensor_sha256(std::span<const std::byte> bytes);

/// The identity of a whole set of weights: SHA-256 over the lines "name\tdtype\tdim,dim\tsha256\n"
/// sorted by name.
struct TensorDigest {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::string sha256;
};
std::string weights_sha256(std::vector<TensorDigest> tensors);

/// Hashes every tensor of a plan with up to `threads` threads in bounded memory;
/// `on_progress(bytes_done)` may be empty. Verifies the checksums too.
Result<std::vector<TensorDigest>> hash_plan(const FileSystem& files, const Plan& plan, int threads,
                                            const std::function<void(std::uint64_t)>& on_progress);

}  // namespace evalcar::checkpoint
