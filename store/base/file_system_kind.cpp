#include "store/base/file_system_kind.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace evalcar {
namespace {

struct Known {
  std::uint64_t type;
  std::string_view name;
  bool local;
};

// virtiofs answers with FUSE's number; "fakeowner" is how Docker Desktop shows a host's folder.
constexpr std::array<Known, 36> kKnown = {{
    {0xEF53, "ext4", true},         {0x58465342, "XFS", true},    {0x9123683E, "Btrfs", true},
    {0x01021994, "tmpfs", true},    {0x858458F6, "ramfs", true},  {0x794C7630, "overlay", true},
    {0x2FC12FC1, "ZFS", true},      {0xF2F52010, "F2FS", true},   {0xCA451A4E, "bcachefs", true},
    {0x52654973, "ReiserFS", true}, {0x3153464A, "JFS", true},    {0x5346544E, "NTFS", true},
    {0x4D44, "FAT", true},          {0x2011BAB0, "exFAT", true},  {0x73717368, "squashfs", true},
    {0xF15F, "eCryptfs", true},     {0x6969, "NFS", false},       {0x65735546, "FUSE", false},
    {0x0BD00BD0, "Lustre", false},  {0x517B, "SMB", false},       {0xFF534D42, "CIFS", false},
    {0xFE534D42, "SMB2", false},    {0x47504653, "GPFS", false},  {0x00C36400, "Ceph", false},
    {0x5346414F, "AFS", false},     {0x6B414653, "AFS", false},   {0x19830326, "BeeGFS", false},
    {0x73757245, "Coda", false},    {0x564C, "NCP", false},       {0x20030528, "OrangeFS", false},
    {0x18031977, "WekaFS", false},  {0x01021997, "9p", false},    {0x7461636F, "OCFS2", false},
    {0x01161970, "GFS2", false},    {0xAAD7AAEA, "PanFS", false}, {0x6A656A63, "fakeowner", false},
}};

}  // namespace

FileSystemKind file_system_kind(std::uint64_t type) {
  const std::uint64_t magic = type & 0xFFFFFFFFU;  // a signed long on some machines
  const auto* const found = std::find_if(
      kKnown.begin(), kKnown.end(), [magic](const Known& known) { return known.type == magic; });
  if (found != kKnown.end()) return {std::string(found->name), found->local, true};
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "type 0x%llx", static_cast<unsigned long long>(magic));
  return {.name = text.data()};
}

}  // namespace evalcar
