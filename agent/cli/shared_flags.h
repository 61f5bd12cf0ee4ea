// Flags that several commands have in common.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/cli/database_choice.h"
#include "agent/config/config.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace CLI {
class App;
}

namespace evalcar::cli {

/// Options that stand for configuration keys: `--tasks a,b` is evaluate.tasks. Must outlive the
/// parsing, which fills the list.
class Overrides {
 public:
  /// `flag` sets `key`.
  void add(CLI::App* command, const std::string& flag, const std::string& key,
           const std::string& help);
  /// --set, for any key.
  void add_set(CLI::App* command);
  /// In the order in which they were given.
  const std::vector<config::Override>& list() const { return *list_; }

 private:
  std::shared_ptr<std::vector<config::Override>> list_ =
      std::make_shared<std::vector<config::Override>>();
};

/// What to evaluate and how: --tasks, --data, …, and --set.
void add_evaluation_flags(CLI::App* command, Overrides& overrides);

/// --db, --output-dir, --config of the commands that read a database. Must outlive the parsing.
struct DatabaseFlags {
  std::string db;
  std::string output_dir;
  std::string config_file;

  void add(CLI::App* command);
  /// kInvalidArgument and others of the configuration file, if one is given.
  Result<DatabaseChoice> choice(const FileSystem& files) const;
};

/// Runs `command` on the flags' choice; says why and returns kExitUsage if there is none.
int with_database(const DatabaseFlags& flags, FileSystem& files,
                  const std::function<int(DatabaseChoice)>& command);

}  // namespace evalcar::cli
