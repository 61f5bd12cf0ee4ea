// The commands that fit on a screen each.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "agent/cli/database_choice.h"
#include "agent/config/config.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::cli {

struct InitOptions {
  std::string path = "evalcar.toml";  ///< of the configuration to write; "-" prints it
  std::vector<config::Override> overrides;
  bool systemd = false;        ///< a unit's drop-in, not a configuration
  std::string drop_in_folder;  ///< e.g. /etc/systemd/system; empty: it is printed
  std::string config_file;     ///< of that unit
};
/// `evalcar init [FILE]`: writes a commented configuration. An existing file is not touched (2).
/// `evalcar init --systemd [FOLDER] --config FILE`: writes the drop-in of that configuration's unit
/// (systemd_drop_in.h), in place of an older one.
int run_init(const InitOptions& options, FileSystem& files, std::ostream& out, std::ostream& err);

struct TasksOptions {
  std::string tasks_dir;
  std::string check;  ///< --check FILE: explains what is wrong with a task file
  bool json = false;
};
/// `evalcar tasks`: the built-in tasks and those of `tasks_dir`, with the commands that fetch their
/// data. 2: a folder or file of the user's is wrong.
int run_tasks(const TasksOptions& options, FileSystem& files, std::ostream& out, std::ostream& err);

/// The models and checkpoint layouts that can be evaluated.
int run_models(bool json, std::ostream& out);
/// Their names, sorted: "qwen2_5_vl".
std::vector<std::string> model_names();

/// `evalcar merge-request`: one merge, as descriptor 3 asks for it; of the HTTP API
/// (http/merges.h).
int run_merge_request(FileSystem& files);

struct DoctorOptions {
  std::string config_file;
  std::vector<config::Override> overrides;
  std::string checkpoint;  ///< "": none is looked at
  std::string server;      ///< "http://host:port"; "": none is asked
  bool json = false;
};
/// Looks at everything an evaluation needs and says what is missing, and how to mend it: 0 all well
/// or with warnings, 1 something will not work.
int run_doctor(const DoctorOptions& options, FileSystem& files, const Clock& clock,
               std::ostream& out);

/// Becomes `evalcar-evaluator score` with these arguments; returns only if that fails: 2 where
/// there is no such program, else 1.
int run_score(const std::vector<std::string>& arguments, FileSystem& files, std::ostream& err);

/// `evalcar retry STEP`: evaluations of a step that ended without a result get another chance. The
/// one that holds the database does it, if an agent runs.
int run_retry(const DatabaseChoice& database, std::int64_t step, FileSystem& files,
              std::ostream& out, std::ostream& err);

/// `evalcar backfill`: what the policy or a cadence passed over is measured after all, if its
/// weights are still there. Only an agent that runs can do it: it knows what is wanted.
int run_backfill(const DatabaseChoice& database, FileSystem& files, std::ostream& out,
                 std::ostream& err);

/// `evalcar cancel ID`: an evaluation that has not been measured is not to be. As run_retry.
int run_cancel(const DatabaseChoice& database, std::int64_t evaluation, FileSystem& files,
               std::ostream& out, std::ostream& err);

/// `evalcar pin STEP`: the weights of that step stay until `off`. Only an agent that runs can do
/// it: it knows the files.
int run_pin(const DatabaseChoice& database, std::int64_t step, bool off, FileSystem& files,
            std::ostream& out, std::ostream& err);

/// Becomes the trainer file's own `push` with these arguments, for the output directory that is
/// named, or that of the database's newest run; returns only if that fails. EVALCAR_PYTHON: the
/// Python to run it in (python3).
int run_push(const DatabaseChoice& database, const std::vector<std::string>& arguments,
             FileSystem& files, std::ostream& err);

struct PruneRules {
  std::optional<std::int64_t> keep;  ///< --keep N: the newest N steps stay
  std::string older_than;  ///< --older-than 30d: so do those published since; "" = no rule
  bool dry_run = false;
};
/// `evalcar prune`: results files and samples of old steps go, numbers and the best steps stay
/// (publish/prune.h). 0: something went (or would), 3: there was nothing, 2: no rule.
int run_prune(const DatabaseChoice& database, const PruneRules& rules, FileSystem& files,
              std::ostream& out, std::ostream& err);

}  // namespace evalcar::cli
