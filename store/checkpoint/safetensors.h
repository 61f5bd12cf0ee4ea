// The safetensors format: 8 bytes little-endian length n, n bytes of JSON that begin with '{', then
// the tensors' bytes. Reference: huggingface/safetensors, README "Format", whose rules (no
// duplicate keys, no overlap, no hole, the data start at 0 and end with the file) are all demanded
// here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/dtype.h"

namespace evalcar::checkpoint {

/// The reference implementation's own limit on n.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
/// Of tensors in one file: ten times what the largest real shards hold. Bounds time and memory.
inline constexpr std::size_t kMaxSafetensorsTensors = 200'000;

struct SafetensorsTensor {
  std::string name;  ///< any text at all, an opaque name
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  ///< torch's: of a type that packs two numbers, of the pairs
  std::uint64_t begin = 0;          ///< bytes from SafetensorsFile::data_offset
  std::uint64_t end = 0;
};

struct SafetensorsFile {
  std::uint64_t data_offset = 0;  ///< of the first tensor's bytes, from the start of the file
  std::uint64_t data_bytes = 0;   ///< the largest end
  std::vector<SafetensorsTensor> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Parses the JSON header (without the length). The size of the file is not known here.
Result<SafetensorsFile> parse_safetensors_header(std::string_view header, std::string_view where);

/// Reads the header of a file and checks it against the file's size. kUnavailable when the file is
/// shorter than its header says (still being written, or torn), kCorruption for everything else.
Result<SafetensorsFile> read_safetensors(const ReadableFile& file, std::string_view where);

/// The bytes that begin a file: length and header, padded with spaces so that the data begin at a
/// multiple of 8. Tensors are laid out in the order given. Deterministic.
/// kUnsupported for a dtype without a name in the format.
Result<std::string> make_safetensors_header(const std::vector<SafetensorsTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata);

/// Where an index says that a tensor is.
struct IndexedTensor {
  std::string file;          ///< a plain name in the same folder
  std::uint64_t offset = 0;  ///< byte of the index at which that name stands, for errors
};

/// `model.safetensors.index.json`: by tensor name. kCorruption with the byte for a name that leaves
/// the folder, duplicate keys, or anything that is not text.
Result<std::map<std::string, IndexedTensor>> parse_safetensors_index(std::string_view text,
                                                                     std::string_view where);

}  // namespace evalcar::checkpoint
