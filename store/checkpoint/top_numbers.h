// The numbers at the top of a JSON object in a file that may be large: a trainer's state holds the
// log of its whole run. The file is read a piece at a time, and what nobody asks for costs no
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// By key.
using TopNumbers = std::map<std::string, double, std::less<>>;

/// The log of two million steps.
inline constexpr std::uint64_t kMaxTrainerStateBytes = std::uint64_t{512} << 20U;

/// Those of `keys` that are numbers of the object in a file that Python wrote: its NaN and Infinity
/// are taken for 0, as in replace_non_finite. kUnavailable if the file is empty or ends too early
/// (it may still be written); kCorruption with the byte for malformed text, one of `keys` twice, a
/// nesting deeper than 256, a string of more than 16 MiB, or a file that is larger than its limit.
Result<TopNumbers> top_level_numbers(const FileSystem& files, const std::string& path,
                                     const std::set<std::string, std::less<>>& keys,
                                     std::uint64_t limit_bytes);

/// The same of an open file; `path` names it in errors.
Result<TopNumbers> top_level_numbers(const ReadableFile& file, const std::string& path,
                                     const std::set<std::string, std::less<>>& keys,
                                     std::uint64_t limit_bytes);

/// A whole number of those, from 0 to 2^53; absent if it is not there or something else.
std::optional<std::int64_t> whole_number(const TopNumbers& numbers, std::string_view key);

}  // namespace evalcar::checkpoint
