#include "store/checkpoint/torch_zip.h"

#include <algorithm>

#include "store/checkpoint/crc32.h"
#include "store/checkpoint/numeric.h"
#include "store/checkpoint/zip_directory.h"

namespace evalcar::checkpoint {
Status check_zip_is_whole(const ReadableFile& file, const std::string& where) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  EVALCAR_ASSIGN_OR_RETURN(const ZipDirectory directory,
                           find_directory(file, info.size_bytes, where));
  (void)directory;
  return {};
}

Result<TorchZip> TorchZip::read(const ReadableFile& file, const std::string& where) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  EVALCAR_ASSIGN_OR_RETURN(const ZipDirectory directory,
                           find_directory(file, info.size_bytes, where));
  EVALCAR_ASSIGN_OR_RETURN(auto entries, read_central(file, directory, where));
  for (ZipEntry& entry : entries) {
    EVALCAR_RETURN_IF_ERROR(check_local_header(file, entry, directory.offset, where));
  }
  std::sort(entries.begin(), entries.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.local_offset < b.local_offset; });
  EVALCAR_RETURN_IF_ERROR(check_record_tiling(file, entries, directory.offset, where));

  TorchZip zip;
  const std::string root =
      entries.empty() ? "" : entries[0].name.substr(0, entries[0].name.find('/') + 1);
  for (ZipEntry& entry : entries) {
    if (root.empty() || !entry.name.starts_with(root)) {
      return corrupt_at(
          where, entry.local_offset,
          "record " + quote_name(entry.name) + " is not below the root folder " + quote_name(root));
    }
    zip.records_.push_back(
        {{entry.data_offset, entry.size, entry.crc32}, entry.name.substr(root.size())});
    zip.has_checksums_ = zip.has_checksums_ || entry.crc32 != 0;
  }
  std::sort(zip.records_.begin(), zip.records_.end(),
            [](const ZipRecord& a, const ZipRecord& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < zip.records_.size(); ++i) {
    if (zip.records_[i].name == zip.records_[i - 1].name) {
      return corrupt_at(where, zip.records_[i].offset,
                        "two records are named " + quote_name(zip.records_[i].name));
    }
  }
  for (const ZipRecord& record : zip.records_) {
    if (record.name == "constants.pkl" || record.name.starts_with("code/")) {
      return make_error(ErrorCode::kUnsupported,
                        where + ": is a TorchScript archive, expected a torch.save of tensors (" +
                            quote_name(record.name) + " at byte " + std::to_string(record.offset) +
                            ")");
    }
  }
  if (const ZipRecord* order = zip.find("byteorder")) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string text, zip.read_record(file, *order, 16, where));
    if (text != "little") {
      return make_error(ErrorCode::kUnsupported, where + ": byte order " + quote_name(text) +
                                                     ", expected \"little\", at byte " +
                                                     std::to_string(order->offset));
    }
  }
  return zip;
}

const ZipRecord* TorchZip::find(std::string_view name) const {
  const auto found = std::lower_bound(
      records_.begin(), records_.end(), name,
      [](const ZipRecord& record, std::string_view wanted) { return record.name < wanted; });
  return found != records_.end() && found->name == name ? &*found : nullptr;
}

Result<std::string> TorchZip::read_record(const ReadableFile& file, const ZipRecord& record,
                                          std::uint64_t limit_bytes,
                                          const std::string& where) const {
  if (record.size > limit_bytes) {
    return corrupt_at(where, record.offset,
                      "record " + quote_name(record.name) + " of " + std::to_string(record.size) +
                          " bytes, expected at most " + std::to_string(limit_bytes));
  }
  std::string bytes(record.size, '\0');
  const auto writable = std::as_writable_bytes(std::span<char>(bytes.data(), bytes.size()));
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(record.offset, writable, where));
  if (has_checksums_ && crc32(writable) != record.crc32) {
    return corrupt_at(where, record.offset,
                      "record " + quote_name(record.name) + " does not match its CRC-32");
  }
  return bytes;
}

}  // namespace evalcar::checkpoint
