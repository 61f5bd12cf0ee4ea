// Tensors in the data.pkl of a torch.save file: where their elements lie, checked against the
// storages that the ZIP really has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/checkpoint/pickle.h"
#include "store/checkpoint/torch_zip.h"

namespace evalcar::checkpoint {

/// A plain tensor: a strided view of one storage record.
struct StoredTensor {
  DType dtype = DType::kFloat32;
  std::uint64_t file_offset = 0;  ///< bytes from the start of the file, of element (0, …, 0)
  std::vector<std::int64_t> size;
  std::vector<std::int64_t> stride;  ///< elements; never overlapping
  RecordPlace record;                ///< the storage it lies in; not its name, which may be long
};

/// One opened torch.save file.
struct TorchFile {
  std::string where;
  TorchZip zip;
  Pickle pickle;

  /// Reads the directory and data.pkl. Errors as TorchZip::read and Pickle::parse.
  static Result<TorchFile> read(const ReadableFile& file, const std::string& where,
                                PickleNames names = PickleNames::kTensors);

  /// Of data.pkl.
  std::uint64_t description_bytes() const;
  /// " (by data.pkl at byte N)", for errors.
  std::string place() const;
  /// Of a tensor's name.
  Error corrupt(const std::string& what, const std::string& why) const;
};

/// Whether a node is a plain tensor (or a Parameter around one). A tensor with attributes, which
/// DeepSpeed saves, counts as one where the file's names allow its class.
bool is_plain_tensor(const Pickle& pickle, Pickle::NodeId node);

/// The tensor that `node` rebuilds; `name` is for errors. kCorruption for everything that reaches
/// beyond its storage, kUnsupported for views that overlap themselves or carry conjugation bits.
Result<StoredTensor> read_stored_tensor(const TorchFile& file, Pickle::NodeId node,
                                        const std::string& name);

/// A tuple, list or torch.Size of integers ≥ 0, at most `limit` long; absent for anything else.
std::optional<std::vector<std::int64_t>> read_sizes(const Pickle& pickle, Pickle::NodeId node,
                                                    std::size_t limit);

}  // namespace evalcar::checkpoint
