// A data set in Parquet, by Arrow: this file and arrow_value.cpp are the only ones that see it.
//
// A split is several files of several row groups. Documents are asked for in any order, from any
// thread, and a data set's pictures do not fit in memory. So a row group's plain columns are read
// as a whole and kept (a few megabytes), its picture columns apart from them, one column at a time,
// in a small cache; a picture column of a row group larger than kMostCachedGroup is read as a
// stream of few rows, which starts over when somebody goes back.
#include <arrow/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "evaluator/tasks/arrow_file.h"
#include "evaluator/tasks/arrow_value.h"
#include "evaluator/tasks/data_set.h"
#include "store/base/hash.h"

namespace evalcar::tasks {
namespace {

constexpr std::int64_t kMostCachedGroup = std::int64_t{256} << 20U;  // bytes, uncompressed
constexpr std::int64_t kMostCached = std::int64_t{512} << 20U;
constexpr std::int64_t kMostPlainGroup = std::int64_t{4} << 30U;
constexpr std::int64_t kStreamRows = 16;
constexpr std::uint64_t kTail = 64U << 10U;

Error from_arrow(const arrow::Status& status, const std::string& path) {
  const ErrorCode code = status.IsOutOfMemory()      ? ErrorCode::kUnavailable
                         : status.IsIOError()        ? ErrorCode::kCorruption
                         : status.IsNotImplemented() ? ErrorCode::kUnsupported
                                                     : ErrorCode::kCorruption;
  return make_error(code, path + ": Parquet: " + status.message());
}

struct File {
  std::string path;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  std::map<std::string, std::vector<int>> leaves;  ///< top-level column -> its Parquet columns
};

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
        EVALCAR_RETURN_IF_ERROR(open_file(path));
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
        const Status status = append_images(*chunk, i, files_[group.file].path, out);
        if (!status)
          return with_context(status.error(), place(group, doc_id) + ": column \"" + name + "\"");
        return out;
      }
      i -= chunk->length();
    }
    return make_error(ErrorCode::kCorruption,
                      place(group, doc_id) + ": the row group is shorter than it says");
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
    Block block;
    std::int64_t next = 0;  ///< first row after the block
  };

  std::string place(const Group& group, std::int64_t doc_id) const {
    return files_[group.file].path + ": row " + std::to_string(doc_id - file_first_[group.file]);
  }

  Status open_file(const std::string& path) {
    EVALCAR_ASSIGN_OR_RETURN(auto readable, file_system_.open_readable(path));
    EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, readable->info());
    EVALCAR_RETURN_IF_ERROR(add_fingerprint(*readable, path, info.size_bytes));
    auto source = std::make_shared<ArrowFile>(std::move(readable), path,
                                              static_cast<std::int64_t>(info.size_bytes));

    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();
    parquet::ArrowReaderProperties arrow_properties = parquet::default_arrow_reader_properties();
    arrow_properties.set_batch_size(kStreamRows);
    arrow_properties.set_use_threads(false);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    if (const auto status = builder.Open(source, properties); !status.ok())
      return from_arrow(status, path);
    File file;
    file.path = path;
    builder.properties(arrow_properties);
    if (const auto status = builder.Build(&file.reader); !status.ok())
      return from_arrow(status, path);

    std::shared_ptr<arrow::Schema> schema;
    if (const auto status = file.reader->GetSchema(&schema); !status.ok())
      return from_arrow(status, path);
    EVALCAR_RETURN_IF_ERROR(take_schema(*schema, path));
    const auto metadata = file.reader->parquet_reader()->metadata();
    for (int i = 0; i < metadata->schema()->num_columns(); ++i) {
      file.leaves[metadata->schema()->Column(i)->path()->ToDotVector().front()].push_back(i);
    }
    file_first_.push_back(size_);
    for (int g = 0; g < metadata->num_row_groups(); ++g) {
      const std::int64_t rows = metadata->RowGroup(g)->num_rows();
      if (rows < 0 || rows > (std::int64_t{1} << 40U))
        return make_error(ErrorCode::kCorruption,
                          path + ": Parquet: a row group of " + std::to_string(rows) + " rows");
      if (rows > 0) groups_.push_back({files_.size(), g, size_, rows});
      size_ += rows;
    }
    files_.push_back(std::move(file));
    return {};
  }

  // The tail holds the footer: schema, sizes, offsets and statistics of all columns.
  Status add_fingerprint(const ReadableFile& file, const std::string& path, std::uint64_t size) {
    std::vector<std::byte> tail(static_cast<std::size_t>(std::min(size, kTail)));
    EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(size - tail.size(), tail, path));
    fingerprint_ +=
        base_name(path) + " " + std::to_string(size) + " " + std::to_string(xxh3_64(tail)) + "\n";
    return {};
  }

  // Which columns are pictures: Hugging Face's feature says so, or the form struct<bytes, path> or
  // plain bytes.
  Status take_schema(const arrow::Schema& schema, const std::string& path) {
    Value features = Value::object();
    if (schema.metadata() != nullptr) {
      if (const auto text = schema.metadata()->Get("huggingface"); text.ok()) {
        if (const auto info = parse_json(*text);
            info && info->is_object() && info->contains("info")) {
          const Value& inner = (*info)["info"];
          if (inner.is_object() && inner.contains("features")) features = inner["features"];
        }
      }
    }
    std::vector<Column> columns;
    for (const auto& field : schema.fields()) {
      const arrow::DataType& item = item_type(*field->type());
      Column column{field->name(), field->type()->ToString(),
                    is_image_struct(item) || is_bytes(item)};
      if (features.is_object() && features.contains(field->name())) {
        const Value& feature = features[field->name()];
        if (feature.is_object() && feature.contains("_type") && feature["_type"] == "Image")
          column.is_media = true;
      }
      columns.push_back(std::move(column));
    }
    if (files_.empty()) {
      columns_ = std::move(columns);
      return {};
    }
    const auto same = [](const Column& a, const Column& b) {
      return a.name == b.name && a.type == b.type;
    };
    if (!std::equal(columns.begin(), columns.end(), columns_.begin(), columns_.end(), same)) {
      return make_error(ErrorCode::kCorruption,
                        path + ": its columns are not those of " + files_.front().path);
    }
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

  std::vector<int> leaves_of(const File& file, const std::vector<std::string>& names) const {
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
    const File& file = files_[group.file];
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
    const File& file = files_[group.file];
    try {
      if (!stream_ || stream_->key != key || doc_id < stream_->block.first) {
        auto reader = file.reader->GetRecordBatchReader({group.index}, leaves);
        if (!reader.ok()) return from_arrow(reader.status(), file.path);
        stream_ = Stream{key, std::move(*reader), {nullptr, group.first}, group.first};
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
        stream_->block = {*table, stream_->next};
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

  Status append_images(const arrow::Array& array, std::int64_t i, const std::string& path,
                       std::vector<std::string>& out) const {
    if (array.IsNull(i)) return {};
    const auto append_list = [&](const auto& list) -> Status {
      for (std::int64_t k = list.value_offset(i); k < list.value_offset(i + 1); ++k) {
        EVALCAR_RETURN_IF_ERROR(append_images(*list.values(), k, path, out));
      }
      return {};
    };
    switch (array.type_id()) {
      case arrow::Type::LIST:
        return append_list(static_cast<const arrow::ListArray&>(array));
      case arrow::Type::LARGE_LIST:
        return append_list(static_cast<const arrow::LargeListArray&>(array));
      case arrow::Type::BINARY:
        out.push_back(static_cast<const arrow::BinaryArray&>(array).GetString(i));
        return {};
      case arrow::Type::LARGE_BINARY:
        out.push_back(static_cast<const arrow::LargeBinaryArray&>(array).GetString(i));
        return {};
      case arrow::Type::STRING:
        return append_named(static_cast<const arrow::StringArray&>(array).GetString(i), path, out);
      case arrow::Type::LARGE_STRING:
        return append_named(static_cast<const arrow::LargeStringArray&>(array).GetString(i), path,
                            out);
      case arrow::Type::STRUCT: {
        const auto& record = static_cast<const arrow::StructArray&>(array);
        if (const auto bytes = record.GetFieldByName("bytes");
            bytes != nullptr && !bytes->IsNull(i)) {
          return append_images(*bytes, i, path, out);
        }
        if (const auto named = record.GetFieldByName("path");
            named != nullptr && !named->IsNull(i)) {
          return append_images(*named, i, path, out);
        }
        return {};
      }
      default:
        return make_error(ErrorCode::kInvalidArgument,
                          "is of type " + array.type()->ToString() +
                              ", expected pictures: struct<bytes, path>, bytes, or paths");
    }
  }

  Status append_named(const std::string& name, const std::string& path,
                      std::vector<std::string>& out) const {
    EVALCAR_ASSIGN_OR_RETURN(std::string bytes, read_named_image(file_system_, path, name));
    out.push_back(std::move(bytes));
    return {};
  }

  const FileSystem& file_system_;
  std::vector<std::string> paths_;
  std::vector<File> files_;
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
