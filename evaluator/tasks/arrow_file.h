// Arrow reads through our own files, so that limits and fakes hold for it too. Included by
// parquet_file.cpp alone.
#pragma once

#include <arrow/api.h>
#include <arrow/io/interfaces.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "store/base/file_system.h"

namespace evalcar::tasks {

class ArrowFile final : public arrow::io::RandomAccessFile {
 public:
  ArrowFile(std::unique_ptr<ReadableFile> file, std::string path, std::int64_t size)
      : file_(std::move(file)), path_(std::move(path)), size_(size) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Result<std::int64_t> GetSize() override { return size_; }
  arrow::Status Seek(std::int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t read, ReadAt(position_, bytes, out));
    position_ += read;
    return read;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
    position_ += buffer->size();
    return buffer;
  }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes,
                                     void* out) override {
    if (position < 0 || bytes < 0) return arrow::Status::Invalid("negative position or size");
    const std::int64_t there = std::max<std::int64_t>(0, std::min(bytes, size_ - position));
    if (there == 0) return 0;
    const auto read =
        file_->read_at(static_cast<std::uint64_t>(position),
                       std::span(static_cast<std::byte*>(out), static_cast<std::size_t>(there)));
    if (!read) return arrow::Status::IOError(read.error().message);
    return static_cast<std::int64_t>(*read);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position,
                                                       std::int64_t bytes) override {
    // A size is taken from the file: more than the file holds is never allocated.
    const std::int64_t there = std::max<std::int64_t>(0, std::min(bytes, size_ - position));
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(there));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t read, ReadAt(position, there, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(read));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  std::int64_t size_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

}  // namespace evalcar::tasks
