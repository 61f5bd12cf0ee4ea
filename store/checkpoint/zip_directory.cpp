#include "store/checkpoint/zip_directory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kDescriptorSignature = 0x08074b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocator64Signature = 0x07064b50;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kLocatorBytes = 20;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kCentralBytes = 46;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kMaxZipDirectoryBytes = std::uint64_t{256} << 20U;
constexpr std::uint32_t kAbsent32 = 0xffffffff;
/// Bit 3: sizes in a descriptor after the data; bit 11: UTF-8 names. Nothing else is written.
constexpr std::uint16_t kAllowedFlags = 0x0808;
constexpr std::uint16_t kDescriptorFlag = 0x0008;

/// Little-endian fields of a byte range whose size was checked before.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint16_t u16(std::size_t at) const { return static_cast<std::uint16_t>(number(at, 2)); }
  std::uint32_t u32(std::size_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }
  std::uint64_t u64(std::size_t at) const { return number(at, 8); }
  std::string text(std::size_t at, std::size_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, size};
  }
  std::size_t size() const { return bytes_.size(); }
  Fields from(std::size_t at, std::size_t size) const { return Fields(bytes_.subspan(at, size)); }

 private:
  std::uint64_t number(std::size_t at, std::size_t size) const {
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) {
      value = value << 8U | std::to_integer<std::uint64_t>(bytes_[at + i]);
    }
    return value;
  }
  std::span<const std::byte> bytes_;
};

Error incomplete(const std::string& where, const std::string& why) {
  return make_error(ErrorCode::kUnavailable,
                    where + ": " + why + " (still being written, or truncated)");
}

/// A POSIX or GNU tar archive: "ustar" behind the first name's fields.
bool is_tar(const ReadableFile& file, std::uint64_t size) {
  constexpr std::uint64_t kMagicAt = 257;
  constexpr std::string_view kMagic = "ustar";
  std::array<std::byte, kMagic.size()> found{};
  if (size < kMagicAt + found.size()) return false;
  if (!file.read_exactly_at(kMagicAt, found, "").has_value()) return false;
  return std::memcmp(found.data(), kMagic.data(), kMagic.size()) == 0;
}

Status check_beginning(const ReadableFile& file, std::uint64_t size, const std::string& where) {
  std::array<std::byte, 4> magic{};
  const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(size, magic.size()));
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(0, std::span(magic).first(n), where));
  constexpr std::array<std::uint8_t, 4> kMagic = {'P', 'K', 3, 4};
  for (std::size_t i = 0; i < n; ++i) {
    if (std::to_integer<std::uint8_t>(magic[i]) == kMagic[i]) continue;
    const bool legacy = (i == 0 && std::to_integer<std::uint8_t>(magic[0]) == 0x80) ||
                        is_tar(file, size);  // a stream of pickles, and what came before that
    const bool text = std::to_integer<std::uint8_t>(magic[0]) == 'v';
    return make_error(
        ErrorCode::kCorruption,
        where + ": is not a torch.save file (no ZIP record at byte 0)" +
            (legacy ? ": it looks like the legacy format from before torch 1.6; save it again"
                    : "") +
            (text ? ": is it a git-lfs pointer? Fetch the file itself" : ""));
  }
  return {};
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos ||
      name.find(':') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
    return false;
  }
  while (true) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

/// Replaces fields that are 0xffffffff by those of the ZIP64 extra field, in the format's order.
bool apply_zip64_extra(const Fields& extra, std::uint64_t& size, std::uint64_t& stored,
                       std::uint64_t& local_offset) {
  std::size_t at = 0;
  while (at + 4 <= extra.size()) {
    const std::uint16_t id = extra.u16(at);
    const std::size_t length = extra.u16(at + 2);
    at += 4;
    if (length > extra.size() - at) return false;
    if (id == 1) {
      std::size_t field = at;
      for (std::uint64_t* value : {&size, &stored, &local_offset}) {
        if (*value != kAbsent32) continue;
        if (field + 8 > at + length) return false;
        *value = extra.u64(field);
        field += 8;
      }
    }
    at += length;
  }
  return true;
}

}  // namespace

Result<ZipDirectory> find_directory(const ReadableFile& file, std::uint64_t size,
                                    const std::string& where) {
  EVALCAR_RETURN_IF_ERROR(check_beginning(file, size, where));
  if (size < kEndBytes)
    return incomplete(where, std::to_string(size) + " bytes, no ZIP end record");
  const std::uint64_t tail_bytes = std::min(size, kEnd64Bytes + kLocatorBytes + kEndBytes);
  std::vector<std::byte> tail(tail_bytes);
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(size - tail_bytes, tail, where));
  const Fields end = Fields(tail).from(tail.size() - kEndBytes, kEndBytes);
  const std::uint64_t end_offset = size - kEndBytes;
  if (end.u32(0) != kEndSignature) {
    return incomplete(where,
                      "no ZIP end record in the last 22 of its " + std::to_string(size) + " bytes");
  }
  if (end.u16(20) != 0) return corrupt_at(where, end_offset, "a ZIP comment");
  if (end.u16(4) != 0 || end.u16(6) != 0) return corrupt_at(where, end_offset, "a multi-disk ZIP");
  ZipDirectory directory{end.u32(16), end.u32(12), end.u16(10)};
  std::uint64_t directory_end = end_offset;

  const Fields all(tail);
  const bool has_64 = tail.size() == kEnd64Bytes + kLocatorBytes + kEndBytes &&
                      all.u32(kEnd64Bytes) == kLocator64Signature;
  if (has_64) {
    const Fields locator = all.from(kEnd64Bytes, kLocatorBytes);
    directory_end = size - tail_bytes;
    if (locator.u64(8) != directory_end || locator.u32(4) != 0 || locator.u32(16) > 1) {
      return corrupt_at(where, directory_end + kEnd64Bytes,
                        "the ZIP64 locator points elsewhere than to the record before it");
    }
    const Fields end64 = all.from(0, kEnd64Bytes);
    if (end64.u32(0) != kEnd64Signature || end64.u64(4) != kEnd64Bytes - 12 || end64.u32(16) != 0 ||
        end64.u32(20) != 0 || end64.u64(24) != end64.u64(32)) {
      return corrupt_at(where, directory_end, "a broken ZIP64 end record");
    }
    const ZipDirectory directory64{end64.u64(48), end64.u64(40), end64.u64(32)};
    if ((directory.offset != kAbsent32 && directory.offset != directory64.offset) ||
        (directory.size != kAbsent32 && directory.size != directory64.size) ||
        (directory.entries != 0xffff && directory.entries != directory64.entries)) {
      return corrupt_at(where, end_offset, "the two ZIP end records disagree");
    }
    directory = directory64;
  } else if (end.u16(8) != end.u16(10)) {
    return corrupt_at(where, end_offset, "a multi-disk ZIP");
  }
  const auto claimed_end = checked_add(directory.offset, directory.size);
  if (!claimed_end || *claimed_end != directory_end) {
    return corrupt_at(where, end_offset,
                      "the central directory (" + std::to_string(directory.size) + " bytes at " +
                          std::to_string(directory.offset) + ") does not end at the end record");
  }
  if (directory.size > kMaxZipDirectoryBytes ||
      directory.entries > directory.size / kCentralBytes) {
    return corrupt_at(where, end_offset,
                      "a central directory of " + std::to_string(directory.size) +
                          " bytes cannot hold " + std::to_string(directory.entries) + " entries");
  }
  return directory;
}

Result<std::vector<ZipEntry>> read_central(const ReadableFile& file, const ZipDirectory& directory,
                                           const std::string& where) {
  std::vector<std::byte> bytes(directory.size);
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(directory.offset, bytes, where));
  const Fields all(bytes);
  std::vector<ZipEntry> entries;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto bad = [&](const std::string& why) {
      return corrupt_at(where, directory.offset + at, why);
    };
    if (bytes.size() - at < kCentralBytes || all.u32(at) != kCentralSignature) {
      return bad("a broken entry of the central directory");
    }
    const Fields fixed = all.from(at, kCentralBytes);
    const std::size_t name_bytes = fixed.u16(28);
    const std::size_t extra_bytes = fixed.u16(30);
    if (bytes.size() - at - kCentralBytes < name_bytes + extra_bytes) {
      return bad("an entry runs past the central directory");
    }
    ZipEntry entry;
    entry.name = all.text(at + kCentralBytes, name_bytes);
    entry.flags = fixed.u16(8);
    entry.crc32 = fixed.u32(16);
    entry.size = fixed.u32(24);
    entry.local_offset = fixed.u32(42);
    std::uint64_t stored = fixed.u32(20);
    if ((entry.flags & ~kAllowedFlags) != 0) {
      return bad("record " + quote_name(entry.name) + " has flags " + std::to_string(entry.flags) +
                 " (encrypted?)");
    }
    if (fixed.u16(10) != 0) return bad("record " + quote_name(entry.name) + " is compressed");
    if (fixed.u16(32) != 0) return bad("record " + quote_name(entry.name) + " has a comment");
    if (fixed.u16(34) != 0) return bad("record " + quote_name(entry.name) + " is on another disk");
    if (!apply_zip64_extra(all.from(at + kCentralBytes + name_bytes, extra_bytes), entry.size,
                           stored, entry.local_offset)) {
      return bad("record " + quote_name(entry.name) + " has a broken extra field");
    }
    if (stored != entry.size) return bad("record " + quote_name(entry.name) + " has two sizes");
    if (!is_safe_name(entry.name)) return bad("the record name " + quote_name(entry.name));
    entries.push_back(std::move(entry));
    at += kCentralBytes + name_bytes + extra_bytes;
  }
  if (entries.size() != directory.entries) {
    return corrupt_at(where, directory.offset,
                      "the central directory has " + std::to_string(entries.size()) +
                          " entries, expected " + std::to_string(directory.entries));
  }
  // What is read next lies scattered over the file: each local header, and the data descriptor
  // before it. The disk looks for all of them at once.
  constexpr std::uint64_t kDescriptorBytes = 24;
  for (const ZipEntry& entry : entries) {
    const std::uint64_t before = std::min(entry.local_offset, kDescriptorBytes);
    file.will_read(entry.local_offset - before, before + kLocalBytes + entry.name.size());
  }
  return entries;
}

Status check_local_header(const ReadableFile& file, ZipEntry& entry, std::uint64_t limit,
                          const std::string& where) {
  const auto bad = [&](const std::string& why) {
    return corrupt_at(where, entry.local_offset, "record " + quote_name(entry.name) + " " + why);
  };
  const std::uint64_t header_bytes = kLocalBytes + entry.name.size();
  if (entry.local_offset > limit || limit - entry.local_offset < header_bytes) {
    return bad("begins behind the central directory");
  }
  std::vector<std::byte> bytes(header_bytes);
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(entry.local_offset, bytes, where));
  const Fields local(bytes);
  if (local.u32(0) != kLocalSignature) return bad("has no local header");
  if (local.u16(26) != entry.name.size() ||
      local.text(kLocalBytes, entry.name.size()) != entry.name) {
    return bad("has another name in its local header");
  }
  if (local.u16(6) != entry.flags || local.u16(8) != 0) {
    return bad("has other flags in its local header");
  }
  const bool deferred = (entry.flags & kDescriptorFlag) != 0;
  const auto agrees = [&](std::uint32_t seen, std::uint64_t expected) {
    return seen == expected || seen == kAbsent32 || (deferred && seen == 0);
  };
  if (!agrees(local.u32(14), entry.crc32) || !agrees(local.u32(18), entry.size) ||
      !agrees(local.u32(22), entry.size)) {
    return bad("has another size or CRC in its local header");
  }
  entry.data_offset = entry.local_offset + header_bytes + local.u16(28);
  if (entry.data_offset > limit || entry.size > limit - entry.data_offset) {
    return bad("of " + std::to_string(entry.size) + " bytes runs past the records' end at " +
               std::to_string(limit));
  }
  return {};
}

Status check_record_tiling(const ReadableFile& file, const std::vector<ZipEntry>& entries,
                           std::uint64_t records_end, const std::string& where) {
  std::uint64_t position = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ZipEntry& entry = entries[i];
    if (entry.local_offset != position) {
      return corrupt_at(where, entry.local_offset,
                        "record " + quote_name(entry.name) +
                            " does not follow the one before, which ends at " +
                            std::to_string(position));
    }
    const std::uint64_t next = i + 1 < entries.size() ? entries[i + 1].local_offset : records_end;
    position = entry.data_offset + entry.size;
    if ((entry.flags & kDescriptorFlag) == 0) continue;
    const std::uint64_t gap = next >= position ? next - position : 0;
    std::array<std::byte, 8> descriptor{};
    if (gap != 16 && gap != 24) {
      return corrupt_at(where, position,
                        "record " + quote_name(entry.name) + " has no data descriptor");
    }
    EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(position, descriptor, where));
    const Fields fields(descriptor);
    if (fields.u32(0) != kDescriptorSignature || fields.u32(4) != entry.crc32) {
      return corrupt_at(
          where, position,
          "the data descriptor of " + quote_name(entry.name) + " disagrees with its entry");
    }
    position = next;
  }
  if (position != records_end) {
    return corrupt_at(where, position, "bytes that belong to no record");
  }
  return {};
}

Error corrupt_at(const std::string& where, std::uint64_t offset, const std::string& why) {
  return make_error(ErrorCode::kCorruption,
                    where + ": " + why + ", at byte " + std::to_string(offset));
}

}  // namespace evalcar::checkpoint
