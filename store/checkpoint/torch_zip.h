// The ZIP container of torch.save: stored records below one root folder, a ZIP64 end record, no
// comment. The reader demands exactly what torch writes: records that follow each other from byte 0
// to the central directory, local and central headers that agree, no compression, no encryption.
// Nothing is ever extracted; records are byte ranges. Reference: PKWARE APPNOTE 6.3.9;
// caffe2/serialize/inline_container.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

struct RecordPlace {
  std::uint64_t offset = 0;  ///< of its bytes, from the start of the file
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;
};

struct ZipRecord : RecordPlace {
  std::string name;  ///< below the root folder: "data.pkl", "data/0"
};

class TorchZip {
 public:
  /// Reads the directory of a whole file. kUnavailable where the end record is not there (still
  /// being written, or truncated), kUnsupported for TorchScript and big-endian files, kCorruption
  /// with the offset for everything that breaks the rules.
  static Result<TorchZip> read(const ReadableFile& file, const std::string& where);

  /// Absent if there is no such record.
  const ZipRecord* find(std::string_view name) const;
  const std::vector<ZipRecord>& records() const { return records_; }

  /// False for a file written under torch.serialization.set_crc32_options(False): all its CRCs are
  /// 0.
  bool has_checksums() const { return has_checksums_; }

  /// The bytes of a record, checked against its CRC-32. kCorruption if it is larger than the limit.
  Result<std::string> read_record(const ReadableFile& file, const ZipRecord& record,
                                  std::uint64_t limit_bytes, const std::string& where) const;

 private:
  std::vector<ZipRecord> records_;  // sorted by name
  bool has_checksums_ = false;
};

/// The cheap part of TorchZip::read: the file begins as a ZIP and its end record and central
/// directory are in place. What a watcher asks again and again. Errors as TorchZip::read.
Status check_zip_is_whole(const ReadableFile& file, const std::string& where);

}  // namespace evalcar::checkpoint
