// One prepared picture as a file: what it is of, its sides, its pixels, and a checksum over all.
#pragma once

#include <cstdint>
#include <string>

#include "evaluator/vision/prepare.h"
#include "store/base/file_system.h"
#include "store/base/hash.h"
#include "store/base/result.h"

namespace evalcar::vision {

/// What an entry is of; its file's name is this in hexadecimal.
using PictureKey = Sha256Digest;

/// Bytes of its entry's file.
std::uint64_t entry_bytes(const PreparedImage& image);

/// Appends the entry to a new file.
Status write_entry(WritableFile& file, const PictureKey& key, const PreparedImage& image);

/// Reads an entry: the picture without its grid, which the settings tell. kCorruption for a file
/// that is not one, is torn, was changed, or is of another key; no more is read or allocated than
/// the file's own size, and nothing above 1 GiB.
Result<PreparedImage> read_entry(const ReadableFile& file, const PictureKey& key,
                                 const std::string& path);

}  // namespace evalcar::vision
