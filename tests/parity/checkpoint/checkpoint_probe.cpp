// `inspect` and `merge` without the rest of the program: lets the parity tests of this room run
// before (and faster than) the whole of evalcar is built. It takes the same flags.
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "agent/cli/inspect_command.h"
#include "agent/cli/merge_command.h"

using namespace evalcar;

namespace {

int usage(const std::string& what) {
  std::cerr << "checkpoint_probe: " << what << "\n";
  return 2;
}

int inspect(const std::vector<std::string>& arguments) {
  cli::InspectOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag == "--hash") {
      options.hash = true;
    } else if (flag == "--json") {
      options.json = true;
    } else if (flag == "--weights" && i + 1 < arguments.size()) {
      const auto kind = checkpoint::weights_kind_from_name(arguments[++i]);
      if (!kind) return usage("--weights");
      options.weights = *kind;
    } else if (flag == "--diff" && i + 1 < arguments.size()) {
      options.diff = arguments[++i];
    } else if (options.checkpoint.empty() && !flag.starts_with("--")) {
      options.checkpoint = flag;
    } else {
      return usage("unknown argument " + flag);
    }
  }
  RealFileSystem files;
  return cli::run_inspect(options, files, std::cout, std::cerr);
}

int merge(const std::vector<std::string>& arguments) {
  cli::MergeOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag == "--merge") {
      options.average = true;
      continue;
    }
    if (flag == "--dry-run") {
      options.dry_run = true;
      continue;
    }
    if (i + 1 == arguments.size()) return usage("no value for " + flag);
    const std::string& value = arguments[++i];
    if (flag == "--input_dir") {
      std::stringstream list(value);
      for (std::string item; std::getline(list, item, ',');) options.inputs.push_back(item);
    } else if (flag == "--output_dir") {
      options.output_dir = value;
    } else if (flag == "--type") {
      options.type = value;
    } else if (flag == "--step") {
      options.step = std::stoll(value);
    } else if (flag == "--state_dict_dirname") {
      options.state_dict_dirname = value;
    } else if (flag == "--weights") {
      const auto kind = checkpoint::weights_kind_from_name(value);
      if (!kind) return usage("--weights");
      options.weights = *kind;
    } else if (flag == "--dtype") {
      options.dtype = value;
    } else if (flag == "--max-shard-size") {
      options.max_shard_size = value;
    } else if (flag == "--model_name_or_class") {
      options.model_name_or_class = value;
    } else {
      return usage("unknown argument " + flag);
    }
  }
  RealFileSystem files;
  return cli::run_merge(options, files, std::cout, std::cerr);
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.empty()) return usage("inspect or merge?");
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (arguments[0] == "inspect") return inspect(rest);
  if (arguments[0] == "merge") return merge(rest);
  return usage("inspect or merge?");
}
