// The fuzzer's input as a readable file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "store/base/file_system.h"

namespace evalcar::fuzz {

class BytesFile final : public ReadableFile {
 public:
  BytesFile(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= bytes_.size()) return std::size_t{0};
    const auto count = std::min<std::size_t>(out.size(), bytes_.size() - offset);
    // An empty span may have no address, which memcpy does not allow even for no bytes.
    if (count != 0) std::memcpy(out.data(), bytes_.data() + offset, count);
    return count;
  }
  Result<FileInfo> info() const override {
    FileInfo info;
    info.type = FileType::kRegular;
    info.size_bytes = bytes_.size();
    return info;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace evalcar::fuzz
