#include "agent/stage/held.h"

#include <algorithm>

namespace evalcar::stage {

void Held::add(const std::string& lease, const FileInfo& file) {
  const Inode inode(file.device, file.inode);
  File& known = files_[inode];
  if (known.only_ours()) bytes_ -= known.size_bytes;
  known.links = file.link_count;
  known.size_bytes = file.size_bytes;
  ++known.ours;
  known.leases.insert(lease);
  if (known.only_ours()) bytes_ += known.size_bytes;
  ++of_[lease][inode];
}

void Held::drop(const std::string& lease) {
  const auto names = of_.find(lease);
  if (names == of_.end()) return;
  for (const auto& [inode, count] : names->second) {
    const auto file = files_.find(inode);
    const bool counted = file->second.only_ours();
    file->second.links -= std::min(file->second.links, count);
    file->second.ours -= count;
    file->second.leases.erase(lease);
    if (file->second.ours > 0) continue;
    if (counted) bytes_ -= file->second.size_bytes;
    files_.erase(file);
  }
  of_.erase(names);
}

std::uint64_t Held::bytes_of(const std::string& lease) const {
  std::uint64_t bytes = 0;
  const auto names = of_.find(lease);
  if (names == of_.end()) return bytes;
  for (const auto& [inode, count] : names->second) {
    const File& file = files_.at(inode);
    if (file.only_ours()) bytes += file.size_bytes;
  }
  return bytes;
}

std::uint64_t Held::freed_by(const std::set<std::string>& leases) const {
  std::map<Inode, std::uint64_t> going;
  for (const std::string& lease : leases) {
    const auto names = of_.find(lease);
    if (names == of_.end()) continue;
    for (const auto& [inode, count] : names->second) going[inode] += count;
  }
  std::uint64_t bytes = 0;
  for (const auto& [inode, count] : going) {
    const File& file = files_.at(inode);
    if (file.only_ours() && count == file.ours) bytes += file.size_bytes;
  }
  return bytes;
}

std::set<std::string> Held::sharers_of(const std::string& lease) const {
  std::set<std::string> all = {lease};
  const auto names = of_.find(lease);
  if (names == of_.end()) return all;
  for (const auto& [inode, count] : names->second) {
    const std::set<std::string>& in = files_.at(inode).leases;
    all.insert(in.begin(), in.end());
  }
  return all;
}

std::vector<std::string> Held::leases() const {
  std::vector<std::string> all;
  all.reserve(of_.size());
  for (const auto& [lease, names] : of_) all.push_back(lease);
  return all;
}

Held::Files Held::files_of(const std::vector<std::string>& leases) const {
  Files files;
  for (const std::string& lease : leases) {
    const auto names = of_.find(lease);
    if (names == of_.end()) continue;
    for (const auto& [inode, count] : names->second) files.insert(inode);
  }
  return files;
}

bool Held::can_free(const std::string& lease, const Files& staying) const {
  const auto names = of_.find(lease);
  return names != of_.end() && std::ranges::any_of(names->second, [&](const auto& name) {
           return files_.at(name.first).only_ours() && !staying.contains(name.first);
         });
}

}  // namespace evalcar::stage
