// The way back: rows of the database from the files that were published. A database can be damaged,
// deleted, or lose its newest part with a WAL; and another one may have been in use meanwhile. The
// results file of each evaluation holds all that its rows do (under `evalcar.record`), so that what
// was published is neither measured nor published again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/publish/publisher.h"
#include "store/state/store.h"

namespace evalcar::publish {

/// JSON of what a row cannot be made again without; part of the results file. Of a result without
/// what that file says already.
Result<std::string> record_of(const state::Reader& reader, const state::Evaluation& evaluation,
                              const protocol::EvaluationResult& result);

struct Recalled {
  std::int64_t taken = 0;
  /// Lines of this run that the database does not know and that cannot be taken, and why. What they
  /// measured is measured again where its checkpoint is still there, and recognised then.
  std::vector<std::string> left;
};

/// Gives the store what metrics.jsonl and the results files in a folder know of a run and it does
/// not. Only reads files. A line is taken only if its results file says the same: its key over
/// weights, settings, tasks and fingerprints, and each of its numbers. A folder of thousands of
/// results is recalled in slices. Not thread-safe.
class Recall {
 public:
  /// `files` and `store` must outlive it.
  Recall(const FileSystem& files, std::string dir, state::Store& store, state::Run run);
  ~Recall();
  Recall(Recall&&) noexcept;
  Recall& operator=(Recall&&) noexcept;

  /// Goes on until all is recalled (true), or until `enough` says so behind a line. Errors: the
  /// store's; what was taken stays so.
  Result<bool> step(const std::function<bool()>& enough);
  /// So far.
  const Recalled& recalled() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The same at once.
Result<Recalled> recall_published(const FileSystem& files, const std::string& dir,
                                  state::Store& store, const state::Run& run);

/// The generation of the run that the newest line in `dir` is of, if its name is `<stem>-<n>`; else
/// 0.
std::int64_t published_generation(const FileSystem& files, const std::string& dir,
                                  const std::string& stem);

}  // namespace evalcar::publish
