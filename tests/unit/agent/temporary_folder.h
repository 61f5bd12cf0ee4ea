// A folder of the test's own on the real disk, removed at the end.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "store/base/file_system.h"

namespace evalcar::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* const base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/evalcar-test-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp: " + path_);
  }
  ~TemporaryFolder() {
    RealFileSystem files;
    (void)remove_tree(files, path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

  /// Creates or replaces a file, with its folders.
  void write(std::string_view name, std::string_view content) const {
    RealFileSystem files;
    const std::string path = *this / name;
    if (!make_directories(files, parent_path(path)).has_value()) throw std::runtime_error(path);
    (void)files.remove_file(path);
    const auto file = files.create(path, 0644);
    if (!file.has_value() || !(*file)->append(content).has_value()) throw std::runtime_error(path);
  }

 private:
  std::string path_;
};

}  // namespace evalcar::testing
