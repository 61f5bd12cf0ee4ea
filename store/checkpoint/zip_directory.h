// The ZIP format, as far as torch.save uses it: end records (ZIP64), central directory, local
// headers, data descriptors. What does not agree with itself is refused. Reference: PKWARE
// APPNOTE 6.3.9.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// Where the central directory lies, as the end records say.
struct ZipDirectory {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t entries = 0;
};

/// One entry of the central directory.
struct ZipEntry {
  std::string name;
  std::uint64_t local_offset = 0;
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;
  std::uint16_t flags = 0;
  std::uint64_t data_offset = 0;  ///< set by check_local_header
};

/// "<where>: <why>, at byte <offset>" as kCorruption.
Error corrupt_at(const std::string& where, std::uint64_t offset, const std::string& why);

/// Reads the beginning and the end records of a file of `size` bytes. kUnavailable where the end
/// record is not there.
Result<ZipDirectory> find_directory(const ReadableFile& file, std::uint64_t size,
                                    const std::string& where);

/// Reads the central directory: stored, unencrypted records with safe names.
Result<std::vector<ZipEntry>> read_central(const ReadableFile& file, const ZipDirectory& directory,
                                           const std::string& where);

/// Reads the local header and checks it against the central one; sets data_offset. Nothing may
/// reach beyond `limit`.
Status check_local_header(const ReadableFile& file, ZipEntry& entry, std::uint64_t limit,
                          const std::string& where);

/// The records (sorted by place) must follow each other from byte 0 to `records_end`; behind each,
/// a data descriptor of 16 or 24 bytes where its flag says so.
Status check_record_tiling(const ReadableFile& file, const std::vector<ZipEntry>& entries,
                           std::uint64_t records_end, const std::string& where);

}  // namespace evalcar::checkpoint
