// Files in memory and scratch folders for the tests of this room.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint::testing {

/// A file whose bytes are in memory.
class MemoryFile final : public ReadableFile {
 public:
  explicit MemoryFile(std::string bytes) : bytes_(std::move(bytes)) {}
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= bytes_.size()) return std::size_t{0};
    const std::size_t n = std::min<std::size_t>(out.size(), bytes_.size() - offset);
    if (n != 0) std::memcpy(out.data(), bytes_.data() + offset, n);
    return n;
  }
  Result<FileInfo> info() const override {
    FileInfo info;
    info.type = FileType::kRegular;
    info.size_bytes = bytes_.size();
    return info;
  }

 private:
  std::string bytes_;
};

/// A folder that goes away with the test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "evalcar-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string at(std::string_view name) const { return join_path(path_, name); }
  /// Writes a file, making its folders.
  void write(std::string_view name, std::string_view content) const {
    const std::filesystem::path target = at(name);
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target, std::ios::binary) << content;
  }
  std::string read(std::string_view name) const {
    std::ifstream in(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string path_;
};

/// The bytes of numbers, little-endian as on disk.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Eight little-endian bytes.
inline std::string u64_bytes(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xffU));
  return bytes;
}

/// A safetensors file of a header and data, whatever they say.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return u64_bytes(header.size()) + std::string(header) + std::string(data);
}

/// The whole tensor's bytes, read by a plan.
inline std::string read_tensor(const PlanReader& reader, const Plan& plan, std::size_t index) {
  std::string bytes(plan.tensors[index].bytes(), '\0');
  const Status read =
      reader.read(index, std::as_writable_bytes(std::span<char>(bytes.data(), bytes.size())));
  return read.has_value() ? bytes : "error: " + read.error().message;
}

/// The same by name, with a reader of its own.
inline std::string tensor_of(const FileSystem& files, const Plan& plan, std::string_view name) {
  const auto reader = PlanReader::open(files, plan);
  if (!reader.has_value()) return "error: " + reader.error().message;
  const TensorPlan* const tensor = plan.find(name);
  if (tensor == nullptr) return "error: no tensor " + std::string(name);
  return read_tensor(*reader, plan, static_cast<std::size_t>(tensor - plan.tensors.data()));
}
inline std::string tensor_of(const Plan& plan, std::string_view name) {
  return tensor_of(RealFileSystem(), plan, name);
}

}  // namespace evalcar::checkpoint::testing
