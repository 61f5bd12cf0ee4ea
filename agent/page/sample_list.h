// One checkpoint's samples of one task, as people leaf through them.
#pragma once

#include <cstdint>
#include <string>

#include "agent/page/sample_pictures.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::page {

enum class SampleFilter {
  kAll,
  kWrong,    ///< report::counts_as_right
  kFlipped,  ///< right now and wrong at the step before that was measured, or the other way round
};

struct SampleQuery {
  std::string run;
  std::int64_t evaluation = 0;
  std::string task;
  std::string metric;
  SampleFilter filter = SampleFilter::kAll;
  std::int64_t offset = 0;  ///< among those that the filter leaves
  std::int64_t limit = 20;  ///< at most kMostSamples
};
inline constexpr std::int64_t kMostSamples = 50;

/// {"evaluation", "step", "checkpoint_type", "task", "metric", "total", "matching", "offset",
/// "before": the step that flips are told against or null, "note", "samples": [{"doc_id", "score",
/// "right", "prompt", "answer", "expected", "pictures"?: [{"name", "kept"}], "answer_before"?,
/// "score_before"?}]}, by doc_id; texts are cut. "kept": the file is there. kNotFound: no such
/// evaluation in that run.
Result<std::string> sample_list(const state::Reader& reader, const SampleQuery& query,
                                const SamplePictures& pictures);

}  // namespace evalcar::page
