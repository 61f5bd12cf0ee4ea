// Which way is better: of an accuracy up, of a loss or an error rate down.
#pragma once

#include <cstdint>
#include <string>

#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::report {

/// Whether more of `metric` is better, as was stored with the numbers of this evaluation, or, where
/// it has none (now), with those of its run; true where none tells. `metric` as in the view
/// `metrics`. kNotFound: no such evaluation.
Result<bool> higher_is_better(const state::Reader& reader, std::int64_t evaluation,
                              const std::string& task, const std::string& metric);

}  // namespace evalcar::report
