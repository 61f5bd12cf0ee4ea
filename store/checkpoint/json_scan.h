// A strict, streaming look at JSON out of a checkpoint: no document tree, no recursion, no
// duplicate keys, a depth limit. What a caller does not ask for costs no memory but its own keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

struct JsonScalar {
  enum class Kind { kNull, kBool, kUnsigned, kNegative, kReal, kString };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::uint64_t number = 0;  ///< of kUnsigned only: an integer without sign, fraction or exponent
  std::string_view text;     ///< of kString; valid during the call
};

/// Where a value is: the object keys from the root on; an array adds one empty key for its
/// elements.
using JsonPath = std::vector<std::string>;

/// Told each value in document order. An empty string means "go on", anything else is what is
/// wrong.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual std::string scalar(const JsonPath& path, const JsonScalar& value) = 0;
  virtual std::string open(const JsonPath& path, bool is_array) = 0;
  virtual std::string close(const JsonPath& path) = 0;

  /// During a call: the byte of the text at which that value begins; in close(), that of its
  /// closing bracket.
  std::size_t offset = 0;
};

/// Scans one whole document; `where` names it in errors. kCorruption with the byte for malformed
/// text, duplicate keys, a nesting deeper than `max_depth`, bytes that are not UTF-8, and for what
/// the visitor refuses. `text_offset`: the byte of the file at which the text begins.
Status scan_json(std::string_view text, std::string_view where, std::size_t max_depth,
                 JsonVisitor& visitor, std::uint64_t text_offset = 0);

/// Whether a small file's text is one well-formed JSON object; `where` names it in errors.
/// kUnavailable if it is empty or ends too early (it may still be written).
Status check_json_object(std::string_view text, const std::string& where);

/// Whether text that does not parse could be the beginning of an object that is being written: it
/// begins as one, and its last brace has not come.
bool may_still_grow(std::string_view text);

/// Python's json writes NaN, Infinity and -Infinity where a number is none (a trainer's log of
/// losses); no other reader takes them. Puts a 0 in their place, and blanks, so that all offsets
/// stay.
void replace_non_finite(std::string& text);

}  // namespace evalcar::checkpoint
