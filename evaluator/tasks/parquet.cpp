// A data set in Parquet, by Arrow: this file, parquet_file.cpp and arrow_value.cpp are the only
// ones that see it.
//
// A split is several files of several row groups. Documents are asked for in any order, from any
// thread, and a data set's pictures do not fit in memory. So a row group's plain columns are read
// as a whole and kept (a few megabytes), its picture columns apart from them, one column at a time,
// in a small cache; a picture column of a row group larger than kMostCachedGroup is read as a
// stream of few rows, which starts over when somebody goes back.
#include <arrow/api.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "evaluator/tasks/arrow_value.h"
#include "evaluator/tasks/data_set.h"
#include "evaluator/tasks/parquet_file.h"

namespace evalcar::tasks {
namespace {

constexpr std::int64_t kMostCachedGroup = std::int64_t{256} << 20U;  // bytes, uncompressed
constexpr std::int64_t kMostCached = std::int64_t{512} << 20U;
constexpr std::int64_t kMostPlainGroup = std::int64_t{4} << 30U;

struct Group {
  std::size_t file = 0;
  int index = 0;  ///< in its file
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

// A table or a batch of rows [first, first + rows) of the split.
struct Block {
  std::shared_ptr<arrow::Table> table;
  std::int64_t first = 0;
};

class ParquetData final : public DataSet {
 public:
  ParquetData(const FileSystem& files, std::vector<std::string> paths)
      : file_system_(files), paths_(std::move(paths)) {}

  Status open() {
    for (const std::string& path : paths_) {
      try {
        EVALCAR_RETURN_IF_ERROR(add_file(path));
      } catch (const std::exception& e) {  // parquet::ParquetException, std::bad_alloc
        return make_error(ErrorCode::kCorruption, path + ": Parquet: " + e.what());
      }
    }
    return {};
  }

  std::int64_t size() const override { return size_; }
  const std::vector<Column>& columns() const override { return columns_; }
  const std::string& fingerprint() const override { return fingerprint_; }

  Result<Value> row(std::int64_t doc_id) const override {
    EVALCAR_ASSIGN_OR_RETURN(const Group group, group_of(doc_id));
    EVALCAR_ASSIGN_OR_RETURN(const Block block, plain_block(group));
    Value out = Value::object();
    for (const Column& column : columns_) {
      if (column.is_media) continue;
      auto value = cell(*block.table, column.name, doc_id - block.first);
      if (!value)
        return with_context(value.error(),
                            place(group, doc_id) + ": column \"" + column.name + "\"");
      out[column.name] = std::move(*value);
    }
    return out;
  }

  Result<std::vector<std::string>> images(std::int64_t doc_id,
                                          std::string_view column) const override {
    EVALCAR_ASSIGN_OR_RETURN(const Group group, group_of(doc_id));
    const std::string name(column);
    EVALCAR_ASSIGN_OR_RETURN(const Block block, media_block(group, name, doc_id));
    const auto chunked = block.table->GetColumnByName(name);
    if (chunked == nullptr)
      return make_error(ErrorCode::kInvalidArgument,
                        place(group, doc_id) + ": no column \"" + name + "\"");
    std::vector<std::string> out;
    std::int64_t i = doc_id - block.first;
    for (const auto& chunk : chunked->chunks()) {
      if (i < chunk->length()) {
        const Status status = append_images(file_system_, *chunk, i, files_[group.file].path, out);
        if (!status)
          return with_context(status.error(), place(group, doc_id) + ": column \"" + name + "\"");
        return out;
      }
      i -= chunk->length();
    }
    return make_error(ErrorCode::kCorruption,
                      place(group, doc_id) + ": the row group is shorter than it says");
  }

  Result<std::string> named_image(std::int64_t doc_id, std::string_view name) const override {
    EVALCAR_ASSIGN_OR_RETURN(const Group group, group_of(doc_id));
    return read_named_image(file_system_, files_[group.file].path, name);
  }

  std::string place_of(std::int64_t doc_id) const override {
    const auto group = group_of(doc_id);
    return group.has_value() ? place(*group, doc_id) : "no document";
  }

 private:
  using Key =
      std::tuple<std::size_t, int, std::string>;  // file, group, column ("" = the plain ones)

  struct Cached {
    Key key;
    Block block;
    std::int64_t bytes = 0;
  };

  struct Stream {
    Key key;
    std::unique_ptr<arrow::RecordBatchReader> reader;
    Block before;  ///< the block before: threads that go forward together do not ask in order
    Block block;
    std::int64_t next = 0;  ///< first row after the block
  };

  std::string place(const Group& group, std::int64_t doc_id) const {
    return files_[group.file].path + ": row " + std::to_string(doc_id - file_first_[group.file]);
  }

  Status add_file(const std::string& path) {
    EVALCAR_ASSIGN_OR_RETURN(ParquetFile file, open_parquet_file(file_system_, path));
    const auto same = [](const Column& a, const Column& b) {
      return a.name == b.name && a.type == b.type;
    };
    if (files_.empty()) {
      columns_ = file.columns;
    } else if (!std::equal(file.columns.begin(), file.columns.end(), columns_.begin(),
                           columns_.end(), same)) {
      return make_error(ErrorCode::kCorruption,
                        path + ": its columns are not those of " + files_.front().path);
    }
    fingerprint_ += file.fingerprint;
    file_first_.push_back(size_);
    for (std::size_t g = 0; g < file.group_rows.size(); ++g) {
      const std::int64_t rows = file.group_rows[g];
      if (rows > 0) groups_.push_back({files_.size(), static_cast<int>(g), size_, rows});
      size_ += rows;
    }
    files_.push_back(std::move(file));
    return {};
  }

  Result<Group> group_of(std::int64_t doc_id) const {
    if (doc_id < 0 || doc_id >= size_) {
      return make_error(ErrorCode::kInvalidArgument,
                        "document " + std::to_string(doc_id) + " of " + std::to_string(size_));
    }
    const auto after =
        std::upper_bound(groups_.begin(), groups_.end(), doc_id,
                         [](std::int64_t id, const Group& g) { return id < g.first; });
    return *(after - 1);
  }

  std::vector<int> leaves_of(const ParquetFile& file, const std::vector<std::string>& names) const {
    std::vector<int> result;
    for (const std::string& name : names) {
      if (const auto found = file.leaves.find(name); found != file.leaves.end()) {
        result.insert(result.end(), found->second.begin(), found->second.end());
      }
    }
    return result;
  }

  std::int64_t bytes_of(const Group& group, const std::vector<int>& leaves) const {
    const auto row_group =
        files_[group.file].reader->parquet_reader()->metadata()->RowGroup(group.index);
    std::int64_t total = 0;
    for (const int leaf : leaves)
      total += std::max<std::int64_t>(0, row_group->ColumnChunk(leaf)->total_uncompressed_size());
    return total;
  }

  Result<Block> plain_block(const Group& group) const {
    std::vector<std::string> names;
    for (const Column& column : columns_) {
      if (!column.is_media) names.push_back(column.name);
    }
    const std::vector<int> leaves = leaves_of(files_[group.file], names);
    if (bytes_of(group, leaves) > kMostPlainGroup) {
      return make_error(ErrorCode::kUnsupported,
                        files_[group.file].path + ": row group " + std::to_string(group.index) +
                            " holds more than 4 GiB of text; write it with smaller row groups");
    }
    const std::scoped_lock lock(mutex_);
    return read_group(group, leaves, {group.file, group.index, ""});
  }

  Result<Block> media_block(const Group& group, const std::string& name,
                            std::int64_t doc_id) const {
    const std::vector<int> leaves = leaves_of(files_[group.file], {name});
    const std::scoped_lock lock(mutex_);
    if (bytes_of(group, leaves) <= kMostCachedGroup)
      return read_group(group, leaves, {group.file, group.index, name});
    return read_stream(group, leaves, {group.file, group.index, name}, doc_id);
  }

  // With the lock held.
  Result<Block> read_group(const Group& group, const std::vector<int>& leaves,
                           const Key& key) const {
    for (auto it = cache_.begin(); it != cache_.end(); ++it) {
      if (it->key == key) {
        cache_.splice(cache_.begin(), cache_, it);
        return cache_.front().block;
      }
    }
    const ParquetFile& file = files_[group.file];
    Block block{nullptr, group.first};
    try {
      const auto table = file.reader->ReadRowGroup(group.index, leaves);
      if (!table.ok()) return from_arrow(table.status(), file.path);
      block.table = *table;
      if (const auto status = block.table->ValidateFull(); !status.ok())
        return from_arrow(status, file.path);
    } catch (const std::exception& e) {
      return make_error(ErrorCode::kCorruption, file.path + ": Parquet: " + e.what());
    }
    const std::int64_t bytes = bytes_of(group, leaves);
    cache_.push_front({key, block, bytes});
    cached_bytes_ += bytes;
    while (cached_bytes_ > kMostCached && cache_.size() > 1) {
      cached_bytes_ -= cache_.back().bytes;
      cache_.pop_back();
    }
    return block;
  }

  // With the lock held.
  Result<Block> read_stream(const Group& group, const std::vector<int>& leaves, const Key& key,
                            std::int64_t doc_id) const {
    const ParquetFile& file = files_[group.file];
    try {
      const bool same = stream_ && stream_->key == key;
      if (same && stream_->before.table != nullptr && doc_id >= stream_->before.first &&
          doc_id < stream_->block.first) {
        return stream_->before;
      }
      if (!same || doc_id < stream_->block.first) {
        auto reader = file.reader->GetRecordBatchReader({group.index}, leaves);
        if (!reader.ok()) return from_arrow(reader.status(), file.path);
        stream_ = Stream{key, std::move(*reader), {}, {nullptr, group.first}, group.first};
      }
      while (stream_->block.table == nullptr || doc_id >= stream_->next) {
        std::shared_ptr<arrow::RecordBatch> batch;
        if (const auto status = stream_->reader->ReadNext(&batch); !status.ok())
          return from_arrow(status, file.path);
        if (batch == nullptr)
          return make_error(ErrorCode::kCorruption,
                            place(group, doc_id) + ": the row group is shorter than it says");
        if (const auto status = batch->ValidateFull(); !status.ok())
          return from_arrow(status, file.path);
        auto table = arrow::Table::FromRecordBatches({batch});
        if (!table.ok()) return from_arrow(table.status(), file.path);
        stream_->before = std::exchange(stream_->block, {*table, stream_->next});
        stream_->next += batch->num_rows();
      }
    } catch (const std::exception& e) {
      return make_error(ErrorCode::kCorruption, file.path + ": Parquet: " + e.what());
    }
    return stream_->block;
  }

  static Result<Value> cell(const arrow::Table& table, const std::string& name, std::int64_t i) {
    const auto chunked = table.GetColumnByName(name);
    if (chunked == nullptr) return make_error(ErrorCode::kCorruption, "is not there");
    for (const auto& chunk : chunked->chunks()) {
      if (i < chunk->length()) return value_at(*chunk, i, 0);
      i -= chunk->length();
    }
    return make_error(ErrorCode::kCorruption, "the row group is shorter than it says");
  }

  const FileSystem& file_system_;
  std::vector<std::string> paths_;
  std::vector<ParquetFile> files_;
  std::vector<std::int64_t> file_first_;
  std::vector<Group> groups_;
  std::vector<Column> columns_;
  std::string fingerprint_;
  std::int64_t size_ = 0;

  mutable std::mutex mutex_;  // guards what follows, and the readers, which are not thread-safe
  mutable std::list<Cached> cache_;
  mutable std::int64_t cached_bytes_ = 0;
  mutable std::optional<Stream> stream_;
};

}  // namespace

Result<std::unique_ptr<DataSet>> open_parquet(const FileSystem& files,
                                              const std::vector<std::string>& paths) {
  auto data = std::make_unique<ParquetData>(files, paths);
  EVALCAR_RETURN_IF_ERROR(data->open());
  return std::unique_ptr<DataSet>(std::move(data));
}

}  // namespace evalcar::tasks
