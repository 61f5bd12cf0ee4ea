// How much of the disk leases keep: a file counts once nobody but leases names it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/base/file_system.h"

namespace evalcar::stage {

/// What leases keep on disk although the trainer's own names of it are gone.
class Held {
 public:
  using Inode = std::pair<std::uint64_t, std::uint64_t>;  ///< device, number
  using Files = std::set<Inode>;
  /// A name of a file in the lease `lease`.
  void add(const std::string& lease, const FileInfo& file);
  /// That lease is gone.
  void drop(const std::string& lease);
  /// In all; a file that several leases hold once.
  std::uint64_t bytes() const { return bytes_; }
  /// Of a lease: what nobody but leases holds; a file of several for each of them.
  std::uint64_t bytes_of(const std::string& lease) const;
  /// What is freed where all of these go.
  std::uint64_t freed_by(const std::set<std::string>& leases) const;
  /// That one, and the others that hold files of it.
  std::set<std::string> sharers_of(const std::string& lease) const;
  /// All leases.
  std::vector<std::string> leases() const;
  /// The files that any of these leases holds.
  Files files_of(const std::vector<std::string>& leases) const;
  /// Whether something of this lease is freed where it and all others but those of `staying` (from
  /// files_of()) go. Takes no longer the more leases share its files.
  bool can_free(const std::string& lease, const Files& staying) const;

 private:
  struct File {
    std::uint64_t links = 0;  ///< that exist
    std::uint64_t size_bytes = 0;
    std::uint64_t ours = 0;  ///< of those links
    std::set<std::string> leases;
    bool only_ours() const { return ours > 0 && links <= ours; }
  };
  std::map<Inode, File> files_;
  std::map<std::string, std::map<Inode, std::uint64_t>> of_;  ///< lease → its names of each file
  std::uint64_t bytes_ = 0;
};

}  // namespace evalcar::stage
