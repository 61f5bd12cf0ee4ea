// What a row of the database cannot be made again without, written into the results file of its
// evaluation (`evalcar.record`), and read back from there.
#pragma once

#include <string>

#include "store/base/file_system.h"
#include "store/state/store.h"

namespace evalcar::publish {

/// JSON; part of the results file. Of a result without what that file says already.
Result<std::string> record_of(const state::Reader& reader, const state::Evaluation& evaluation,
                              const protocol::EvaluationResult& result);

/// An evaluation of `run` as its line in `dir`/metrics.jsonl and its results file tell it, without
/// its samples; `files` is the results file alone. kCorruption, with the file's name, where the two
/// do not say the same: its key over weights, settings, tasks and fingerprints, and each of its
/// numbers. Who wrote them or changed them since is not asked.
Result<state::PublishedEvaluation> published_of(const FileSystem& files, const std::string& dir,
                                                const state::Run& run, const std::string& line);

}  // namespace evalcar::publish
