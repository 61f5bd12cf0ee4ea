// Which places on the disk a request may name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/file_system.h"

namespace evalcar::http {

/// kInvalidArgument: no absolute path, or characters that no path of ours has (then 422);
/// kUnsupported: outside of the roots (then 403). Links are followed before it is judged where a
/// path leads, so that none leads out. `files` must outlive it.
class Places {
 public:
  /// `roots`: absolute paths; those that are not there yet hold nothing.
  /// `own`: folders of evalcar's that do not have its usual name (publish.dir).
  Places(const FileSystem& files, std::vector<std::string> roots, std::vector<std::string> own = {})
      : files_(&files), roots_(std::move(roots)), own_(std::move(own)) {}

  /// The real path of a folder that is there. kNotFound if it is not.
  Result<std::string> folder(std::string_view text) const;
  /// The real path that a folder had which is not there any more: its parent is, and nothing has
  /// its name. kNotFound if that is not so.
  Result<std::string> gone_folder(std::string_view text) const;
  /// The path that something made there will have: what is there of it without its links.
  Result<std::string> output(std::string_view text) const;
  /// kUnsupported for a path of output() in a folder that evalcar keeps for itself, but for what
  /// people and programs put into its `merged`.
  Status check_not_ours(const std::string& place) const;
  const FileSystem& files() const { return *files_; }

 private:
  Status check_text(std::string_view text) const;
  Status check_inside(const std::string& real) const;
  const FileSystem* files_;
  std::vector<std::string> roots_;
  std::vector<std::string> own_;
};

}  // namespace evalcar::http
