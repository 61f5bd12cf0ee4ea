// The results files of an evaluation, from its rows: what they say of it besides the numbers, where
// they lie, and by which date.
#pragma once

#include <string>

#include "agent/publish/publisher.h"
#include "agent/publish/results_files.h"

namespace evalcar::publish {

/// Not thread-safe.
class EvaluationFiles {
 public:
  /// All of them must outlive it.
  EvaluationFiles(FileSystem& files, const state::Store& store, const PublisherOptions& options)
      : files_(files), store_(store), options_(options) {}

  /// By what its line and its results file are recognised (evaluation_key).
  Result<std::string> key_of(const state::Evaluation& evaluation,
                             const protocol::EvaluationResult& result) const;
  /// `<dir>/results/<step>/<kind>`.
  std::string results_dir(const state::Evaluation& evaluation) const;
  /// Writes them there. Repeating writes the same files.
  Result<ResultsFiles> write(const state::Evaluation& evaluation,
                             const protocol::EvaluationResult& result);
  /// The same of some of its tasks, elsewhere; no rows are ever made of these.
  Result<ResultsFiles> write_part(const std::string& dir, const state::Evaluation& evaluation,
                                  const protocol::EvaluationResult& part, bool with_samples);

 private:
  Result<RunFacts> run_facts(const state::Evaluation& evaluation,
                             const protocol::EvaluationResult& result) const;
  Result<WallTime> free_date(const std::string& dir, const RunFacts& facts) const;
  Result<ResultsFiles> write_in(const std::string& dir, RunFacts facts,
                                const state::Evaluation& evaluation,
                                const protocol::EvaluationResult& result, bool with_samples);

  FileSystem& files_;
  const state::Store& store_;
  const PublisherOptions& options_;
};

}  // namespace evalcar::publish
