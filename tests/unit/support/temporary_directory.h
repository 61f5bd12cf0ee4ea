// A folder on the real disk that goes away with the test: SQLite and processes need real files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace evalcar::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "evalcar-test-XXXXXX").string();
    const char* const made = ::mkdtemp(pattern.data());
    path_ = made == nullptr ? std::string() : std::string(made);
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
