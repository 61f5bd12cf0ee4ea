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

struct Recalled {
  std::int64_t taken = 0;
  /// Lines of this run that the database does not know and that cannot be taken, and why; or why
  /// metrics.jsonl could not be read on. What they
  /// measured is measured again where its checkpoint is still there, and recognised then.
  std::vector<std::string> left;
};

/// Gives the store what metrics.jsonl and the results files in a folder know of a run and it does
/// not. Only reads files. Lines are the run's by its name or, where the output directory was
/// renamed or copied with our folder in it, by the run's mark in their results file. A line is
/// taken only if its results file says the same: its key over weights, settings, tasks and
/// fingerprints, and each of its numbers. Thousands of results and long samples files are recalled
/// in slices; no file is held open between two. Not thread-safe.
class Recall {
 public:
  /// `files` and `store` must outlive it.
  Recall(const FileSystem& files, std::string dir, state::Store& store, state::Run run);
  ~Recall();
  Recall(Recall&&) noexcept;
  Recall& operator=(Recall&&) noexcept;

  /// Goes on until all is recalled (true), or until `enough` says so: it is asked behind each line
  /// of each file and each mebibyte that holds none. Errors: the store's; what was taken stays so.
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

}  // namespace evalcar::publish
