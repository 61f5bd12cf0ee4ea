// The lines of metrics.jsonl that are written, in the order of their seq, for whoever hands them on
// one after the other and remembers how far he is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "store/base/result.h"

namespace evalcar::state {

class Connection;

struct PublishedLine {
  std::int64_t seq = 0;
  std::string run;
  std::string line;  ///< whole, without the newline
};

/// Reads on a connection of its own. Not thread-safe: one thread.
class PublishedLines {
 public:
  /// Errors as Reader::open.
  static Result<PublishedLines> open(const std::string& path);

  /// The first result after `seq` whose files are all written, of any run. Absent: there is none,
  /// or an earlier one of the run `current` is about to be written and goes first. What another
  /// life of the directory left unwritten is not waited for: nobody writes it any more.
  Result<std::optional<PublishedLine>> after(std::int64_t seq, std::int64_t current) const;
  /// The largest seq that was ever given to a result; 0 before the first.
  Result<std::int64_t> last() const;

 private:
  explicit PublishedLines(std::shared_ptr<Connection> connection);
  std::shared_ptr<Connection> connection_;
};

}  // namespace evalcar::state
