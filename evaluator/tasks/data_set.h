// Documents of a split, read one by one: Parquet (parquet.cpp) or
// JSON lines (jsonl.cpp). Pictures are read apart from the rest, and never all at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/tasks/python_json.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::tasks {

struct Column {
  std::string name;
  std::string type;       ///< for messages
  bool is_media = false;  ///< a Hugging Face Image column: not part of row()
  /// False where row() has a text for people, which is not what Hugging Face datasets gives.
  bool has_value = true;
};

/// Thread-safe.
class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual std::int64_t size() const = 0;
  /// In the order of the file.
  virtual const std::vector<Column>& columns() const = 0;
  /// One document without its media columns: a JSON object, keys in column order.
  virtual Result<Value> row(std::int64_t doc_id) const = 0;
  /// The encoded pictures of a column: one, or several if it holds a list; none for null.
  virtual Result<std::vector<std::string>> images(std::int64_t doc_id,
                                                  std::string_view column) const = 0;
  /// A picture that a text of the document names: a path relative to its data file, or a data: URL.
  /// Its errors do not name the document.
  virtual Result<std::string> named_image(std::int64_t doc_id, std::string_view name) const = 0;
  /// File and row of a document of the set, for messages: "FILE:LINE", "FILE: row N".
  virtual std::string place_of(std::int64_t doc_id) const = 0;
  /// File names, sizes and XXH3 of what identifies the content.
  virtual const std::string& fingerprint() const = 0;
};

/// Opens the files as one sequence of documents.
Result<std::unique_ptr<DataSet>> open_parquet(const FileSystem& files,
                                              const std::vector<std::string>& paths);
Result<std::unique_ptr<DataSet>> open_json_lines(const FileSystem& files,
                                                 const std::vector<std::string>& paths);
/// By the files' endings.
Result<std::unique_ptr<DataSet>> open_data_set(const FileSystem& files,
                                               const std::vector<std::string>& paths);

/// A picture file that a document names: its path relative to the data file, or a data: URL.
Result<std::string> read_named_image(const FileSystem& files, const std::string& data_file,
                                     std::string_view name);

inline constexpr std::uint64_t kMostImageBytes = std::uint64_t{512} << 20U;

}  // namespace evalcar::tasks
