// One Parquet file, opened: its columns, its row groups, and a reader for them. Included by
// parquet.cpp and parquet_file.cpp alone.
#pragma once

#include <arrow/api.h>
#include <parquet/arrow/reader.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "evaluator/tasks/data_set.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::tasks {

/// The reader is not thread-safe.
struct ParquetFile {
  std::string path;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  std::vector<Column> columns;                     ///< top-level, in the order of the file
  std::map<std::string, std::vector<int>> leaves;  ///< top-level column -> its Parquet columns
  std::vector<std::int64_t> group_rows;            ///< of each row group
  std::string fingerprint;                         ///< a line: name, size, XXH3 of the footer
};

inline constexpr std::int64_t kParquetStreamRows = 16;  ///< of a batch that is read as a stream

/// May throw parquet::ParquetException or std::bad_alloc. kCorruption names the file.
Result<ParquetFile> open_parquet_file(const FileSystem& files, const std::string& path);

/// What Arrow says of a file, as an error of ours.
Error from_arrow(const arrow::Status& status, const std::string& path);

}  // namespace evalcar::tasks
