// The numbers of a run as an open page has them: told whole once, then only what changed.
//
// Each row remembers with which change it came. A page says which state it has (`version`), and
// gets the rows of later changes; a row that is no longer there cannot be told so, and who has it
// gets the whole again. Versions of another process, or of another time, are unknown here: whole,
// too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/clock.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::page {

/// A row as the page shows it, JSON; what it is a number of is its key. "configured" is there, and
/// false, where it was measured with other settings than today's, or of another question.
std::string row_text(const state::MetricRow& row);
std::string row_key(const state::MetricRow& row);

/// Not thread-safe; of one run.
class LiveNumbers {
 public:
  /// Reads all of them, and notes which are others than before.
  Status read(const state::Reader& reader, const Clock& clock, const std::string& run);
  /// Another one after each read() that found a change.
  const std::string& version() const { return version_; }
  /// A JSON array. `since`: of the rows that changed after that version, if those are all that is
  /// to be told (`only_news` then), else of all.
  std::string text(std::string_view since, bool& only_news) const;

 private:
  struct Row {
    std::string key;
    std::string json;
    std::uint64_t changed = 0;
  };
  /// -1: none of ours, or one that has rows that are gone.
  std::int64_t change_of(std::string_view version) const;

  std::vector<Row> rows_;  ///< as the reader tells them: by step
  std::string epoch_;      ///< of this object alone: counts of two are not to be confused
  std::uint64_t change_ = 0;
  std::uint64_t last_removal_ = 0;
  std::string version_;
};

}  // namespace evalcar::page
