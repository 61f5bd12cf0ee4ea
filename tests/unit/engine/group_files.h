// A machine's /proc and /sys as far as control groups are asked for, in a folder of its own.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/support/temporary_directory.h"

namespace evalcar::test {

struct GroupFiles {
  TemporaryDirectory directory;

  std::string root() const { return directory.path(); }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
};

}  // namespace evalcar::test
