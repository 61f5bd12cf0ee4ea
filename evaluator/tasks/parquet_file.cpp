#include "evaluator/tasks/parquet_file.h"

#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <utility>

#include "evaluator/tasks/arrow_file.h"
#include "evaluator/tasks/arrow_value.h"
#include "store/base/hash.h"

namespace evalcar::tasks {
namespace {

constexpr std::uint64_t kTail = 64U << 10U;

// The tail holds the footer: schema, sizes, offsets and statistics of all columns.
Result<std::string> fingerprint_of(const ReadableFile& file, const std::string& path,
                                   std::uint64_t size) {
  std::vector<std::byte> tail(static_cast<std::size_t>(std::min(size, kTail)));
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(size - tail.size(), tail, path));
  return base_name(path) + " " + std::to_string(size) + " " + std::to_string(xxh3_64(tail)) + "\n";
}

// Which columns are pictures: Hugging Face's feature says so, or the form struct<bytes, path> or
// plain bytes.
std::vector<Column> columns_of(const arrow::Schema& schema) {
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
    Column column{.name = field->name(),
                  .type = field->type()->ToString(),
                  .is_media = is_image_struct(item) || is_bytes(item),
                  .has_value = has_value(*field->type())};
    if (features.is_object() && features.contains(field->name())) {
      const Value& feature = features[field->name()];
      if (feature.is_object() && feature.contains("_type") && feature["_type"] == "Image")
        column.is_media = true;
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

}  // namespace

Error from_arrow(const arrow::Status& status, const std::string& path) {
  const ErrorCode code = status.IsOutOfMemory()      ? ErrorCode::kUnavailable
                         : status.IsIOError()        ? ErrorCode::kCorruption
                         : status.IsNotImplemented() ? ErrorCode::kUnsupported
                                                     : ErrorCode::kCorruption;
  return make_error(code, path + ": Parquet: " + status.message());
}

Result<ParquetFile> open_parquet_file(const FileSystem& files, const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(auto readable, files.open_readable(path));
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, readable->info());
  ParquetFile file;
  file.path = path;
  EVALCAR_ASSIGN_OR_RETURN(file.fingerprint, fingerprint_of(*readable, path, info.size_bytes));
  auto source = std::make_shared<ArrowFile>(std::move(readable), path,
                                            static_cast<std::int64_t>(info.size_bytes));

  parquet::ReaderProperties properties = parquet::default_reader_properties();
  properties.enable_buffered_stream();
  parquet::ArrowReaderProperties arrow_properties = parquet::default_arrow_reader_properties();
  arrow_properties.set_batch_size(kParquetStreamRows);
  arrow_properties.set_use_threads(false);
  arrow_properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  if (const auto status = builder.Open(source, properties); !status.ok())
    return from_arrow(status, path);
  builder.properties(arrow_properties);
  if (const auto status = builder.Build(&file.reader); !status.ok())
    return from_arrow(status, path);

  std::shared_ptr<arrow::Schema> schema;
  if (const auto status = file.reader->GetSchema(&schema); !status.ok())
    return from_arrow(status, path);
  file.columns = columns_of(*schema);
  const auto metadata = file.reader->parquet_reader()->metadata();
  for (int i = 0; i < metadata->schema()->num_columns(); ++i) {
    file.leaves[metadata->schema()->Column(i)->path()->ToDotVector().front()].push_back(i);
  }
  for (int g = 0; g < metadata->num_row_groups(); ++g) {
    const std::int64_t rows = metadata->RowGroup(g)->num_rows();
    if (rows < 0 || rows > (std::int64_t{1} << 40U))
      return make_error(ErrorCode::kCorruption,
                        path + ": Parquet: a row group of " + std::to_string(rows) + " rows");
    file.group_rows.push_back(rows);
  }
  return file;
}

}  // namespace evalcar::tasks
