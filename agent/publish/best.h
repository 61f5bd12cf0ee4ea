// Which checkpoint is the best of its kind, by metric_for_best_model; and best.json, which says so.
// Of numbers that were measured with the settings of today's configuration: those of other settings
// cannot be compared with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/publish/publisher.h"

namespace evalcar::publish {

/// Whether more of metric_for_best_model is better, as the metric says of itself; absent while
/// nothing has it.
Result<std::optional<bool>> own_direction(const state::Reader& reader,
                                          const PublisherOptions& options, std::int64_t run_id);

/// The best evaluation of a kind: the first to reach the best value; absent while there is none.
Result<std::optional<std::int64_t>> best_evaluation(const state::Reader& reader,
                                                    const PublisherOptions& options,
                                                    std::int64_t run_id, const std::string& kind);
/// The evaluations of a kind from the best on, at most `count`; of equals the one of the lower step
/// first. Only those with a number for metric_for_best_model; the number that stands now counts.
/// Behind those of today's settings come those of others, in their own order, the latest settings
/// first: whoever keeps weights keeps what was the best before, until there are others to keep.
Result<std::vector<std::int64_t>> best_evaluations(const state::Reader& reader,
                                                   const PublisherOptions& options,
                                                   std::int64_t run_id, const std::string& kind,
                                                   std::size_t count);
/// Replaces `<options.dir>/best.json` if it says something else. "checkpoint" is null where that
/// folder was written anew since, or weights alone were measured: what lies there is not the best.
/// No file is made while nothing has a value; one that is there names no best then.
Status write_best(FileSystem& files, const state::Reader& reader, const PublisherOptions& options,
                  std::int64_t run_id);

}  // namespace evalcar::publish
