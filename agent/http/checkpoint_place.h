// Which folders a request may name as a checkpoint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/http/places.h"

namespace evalcar::http {

/// A folder below the roots, in an output directory, by a name that fits the pattern: what the
/// agent would never see as a checkpoint is refused at once, and not after it was waited for.
class CheckpointPlaces {
 public:
  /// `output_dirs`: empty for any; those that are not there yet hold nothing. `pattern`: with one
  /// "{step}" (watch.pattern).
  CheckpointPlaces(Places places, std::vector<std::string> output_dirs, std::string pattern)
      : places_(std::move(places)),
        output_dirs_(std::move(output_dirs)),
        pattern_(std::move(pattern)) {}

  /// The path by which the agent knows it: links are followed, but for one that is itself the entry
  /// of an output directory and leads to what is none. kNotFound if it is not
  /// there, kUnsupported outside of the roots, kInvalidArgument if it is no checkpoint.
  Result<std::string> find(std::string_view text) const;
  /// The same of one that is not there any more.
  Result<std::string> find_gone(std::string_view text) const;
  const Places& places() const { return places_; }

 private:
  Status check(const std::string& path) const;

  Places places_;
  std::vector<std::string> output_dirs_;
  std::string pattern_;
};

}  // namespace evalcar::http
