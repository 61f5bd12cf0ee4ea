// What proves to a receiver that a body is ours.
#pragma once

#include <string>
#include <string_view>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::webhook {

/// HMAC-SHA256 (RFC 2104) in lower-case hexadecimal.
std::string hmac_sha256_hex(std::string_view key, std::string_view text);

/// The secret of a file: its content without the newline at its end. Refused: nothing in it, more
/// than 4 KiB, a file that others than its owner and group may read.
Result<std::string> read_secret(const FileSystem& files, const std::string& path);

}  // namespace evalcar::webhook
