#include "evaluator/tasks/arrow_value.h"

#include <utility>

#include "evaluator/tasks/data_set.h"

namespace evalcar::tasks {
namespace {

constexpr int kMostDepth = 32;

template <typename ListArray>
Result<Value> list_at(const arrow::Array& array, std::int64_t i, int depth) {
  const auto& list = static_cast<const ListArray&>(array);
  Value out = Value::array();
  for (std::int64_t k = list.value_offset(i); k < list.value_offset(i + 1); ++k) {
    EVALCAR_ASSIGN_OR_RETURN(Value item, value_at(*list.values(), k, depth + 1));
    out.push_back(std::move(item));
  }
  return out;
}

Result<Value> struct_at(const arrow::Array& array, std::int64_t i, int depth) {
  const auto& record = static_cast<const arrow::StructArray&>(array);
  Value out = Value::object();
  for (int k = 0; k < record.num_fields(); ++k) {
    EVALCAR_ASSIGN_OR_RETURN(Value item, value_at(*record.field(k), i, depth + 1));
    out[record.struct_type()->field(k)->name()] = std::move(item);
  }
  return out;
}

template <typename Type>
Value number_at(const arrow::Array& array, std::int64_t i) {
  return Value(static_cast<const typename arrow::TypeTraits<Type>::ArrayType&>(array).Value(i));
}

Status append_named(const FileSystem& files, const std::string& name, const std::string& path,
                    std::vector<std::string>& out) {
  EVALCAR_ASSIGN_OR_RETURN(std::string bytes, read_named_image(files, path, name));
  out.push_back(std::move(bytes));
  return {};
}

}  // namespace

bool is_bytes(const arrow::DataType& type) {
  return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY;
}

bool is_image_struct(const arrow::DataType& type) {
  if (type.id() != arrow::Type::STRUCT) return false;
  const auto& record = static_cast<const arrow::StructType&>(type);
  const auto field = record.GetFieldByName("bytes");
  return field != nullptr && is_bytes(*field->type());
}

const arrow::DataType& item_type(const arrow::DataType& type) {
  if (type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST)
    return *type.field(0)->type();
  return type;
}

Result<Value> value_at(const arrow::Array& array, std::int64_t i, int depth) {
  if (depth > kMostDepth)
    return make_error(ErrorCode::kUnsupported, "a column nested deeper than 32 levels");
  if (array.IsNull(i)) return Value(nullptr);
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return Value(static_cast<const arrow::StringArray&>(array).GetString(i));
    case arrow::Type::LARGE_STRING:
      return Value(static_cast<const arrow::LargeStringArray&>(array).GetString(i));
    case arrow::Type::BINARY:
      return Value(static_cast<const arrow::BinaryArray&>(array).GetString(i));
    case arrow::Type::LARGE_BINARY:
      return Value(static_cast<const arrow::LargeBinaryArray&>(array).GetString(i));
    case arrow::Type::BOOL:
      return Value(static_cast<const arrow::BooleanArray&>(array).Value(i));
    case arrow::Type::INT8:
      return number_at<arrow::Int8Type>(array, i);
    case arrow::Type::INT16:
      return number_at<arrow::Int16Type>(array, i);
    case arrow::Type::INT32:
      return number_at<arrow::Int32Type>(array, i);
    case arrow::Type::INT64:
      return number_at<arrow::Int64Type>(array, i);
    case arrow::Type::UINT8:
      return number_at<arrow::UInt8Type>(array, i);
    case arrow::Type::UINT16:
      return number_at<arrow::UInt16Type>(array, i);
    case arrow::Type::UINT32:
      return number_at<arrow::UInt32Type>(array, i);
    case arrow::Type::UINT64:
      return number_at<arrow::UInt64Type>(array, i);
    case arrow::Type::FLOAT:
      return Value(static_cast<double>(static_cast<const arrow::FloatArray&>(array).Value(i)));
    case arrow::Type::DOUBLE:
      return number_at<arrow::DoubleType>(array, i);
    case arrow::Type::LIST:
      return list_at<arrow::ListArray>(array, i, depth);
    case arrow::Type::LARGE_LIST:
      return list_at<arrow::LargeListArray>(array, i, depth);
    case arrow::Type::STRUCT:
      return struct_at(array, i, depth);
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return value_at(*dictionary.dictionary(), dictionary.GetValueIndex(i), depth + 1);
    }
    case arrow::Type::NA:
      return Value(nullptr);
    default: {  // dates, decimals and the like: as text
      const auto scalar = array.GetScalar(i);
      if (!scalar.ok()) return make_error(ErrorCode::kUnsupported, scalar.status().message());
      return Value((*scalar)->ToString());
    }
  }
}

Status append_images(const FileSystem& files, const arrow::Array& array, std::int64_t i,
                     const std::string& path, std::vector<std::string>& out) {
  if (array.IsNull(i)) return {};
  const auto append_list = [&](const auto& list) -> Status {
    for (std::int64_t k = list.value_offset(i); k < list.value_offset(i + 1); ++k) {
      EVALCAR_RETURN_IF_ERROR(append_images(files, *list.values(), k, path, out));
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
      return append_named(files, static_cast<const arrow::StringArray&>(array).GetString(i), path,
                          out);
    case arrow::Type::LARGE_STRING:
      return append_named(files, static_cast<const arrow::LargeStringArray&>(array).GetString(i),
                          path, out);
    case arrow::Type::STRUCT: {
      const auto& record = static_cast<const arrow::StructArray&>(array);
      if (const auto bytes = record.GetFieldByName("bytes");
          bytes != nullptr && !bytes->IsNull(i)) {
        return append_images(files, *bytes, i, path, out);
      }
      if (const auto named = record.GetFieldByName("path"); named != nullptr && !named->IsNull(i)) {
        return append_images(files, *named, i, path, out);
      }
      return {};
    }
    default:
      return make_error(ErrorCode::kInvalidArgument,
                        "is of type " + array.type()->ToString() +
                            ", expected pictures: struct<bytes, path>, bytes, or paths");
  }
}

}  // namespace evalcar::tasks
