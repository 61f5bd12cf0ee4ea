// A real folder that goes away with the test: SQLite and processes need real files. In memory
// (/dev/shm) where there is one: a test kills processes, not the machine, and need not wait for
// fsync.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace evalcar::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    for (const std::string& parent :
         {std::string("/dev/shm"), std::filesystem::temp_directory_path().string()}) {
      std::string pattern = parent + "/evalcar-test-XXXXXX";
      if (::mkdtemp(pattern.data()) != nullptr) {
        path_ = pattern;
        return;
      }
    }
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace evalcar::test
