#include "evaluator/tasks/arrow_value.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
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

// --- What Python's str() makes of what pyarrow gives: datetime, pandas.Timestamp, date, time
// ----------------------------------------------------------------------------------------------

struct Moment {
  std::int64_t seconds = 0;
  std::int64_t nanos = 0;  // 0 ... 999,999,999
};

Moment moment_of(std::int64_t count, arrow::TimeUnit::type unit) {
  std::int64_t per_second = 1;
  for (int i = 0; i < static_cast<int>(unit); ++i) per_second *= 1000;
  const std::int64_t part = (count % per_second + per_second) % per_second;
  return {.seconds = (count - part) / per_second, .nanos = part * (1'000'000'000 / per_second)};
}

template <typename... Numbers>
std::string printed(const char* format, Numbers... numbers) {
  char text[64];
  std::snprintf(text, sizeof text, format, numbers...);
  return text;
}

constexpr std::int64_t kSecondsOfDay = 86'400;
constexpr std::int64_t kFirstDay = -719'162;  // 0001-01-01, the first that Python knows
constexpr std::int64_t kLastDay = 2'932'896;  // 9999-12-31

Result<Value> date_of(std::int64_t days) {
  if (days < kFirstDay || days > kLastDay) {
    return make_error(ErrorCode::kUnsupported, "a date " + std::to_string(days) +
                                                   " days from 1970-01-01, expected one of the "
                                                   "years 1 to 9999");
  }
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{days}}};
  return Value(printed("%04d-%02u-%02u", static_cast<int>(date.year()),
                       static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day())));
}

// Nanoseconds are shown by pandas.Timestamp alone; the others have only microseconds.
std::string time_of(const Moment& of_day, bool shows_nanos) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  std::string text = printed("%02d:%02d:%02d", number(of_day.seconds / 3600),
                             number(of_day.seconds / 60 % 60), number(of_day.seconds % 60));
  if (shows_nanos && of_day.nanos % 1000 != 0) return text + printed(".%09d", number(of_day.nanos));
  if (of_day.nanos >= 1000) text += printed(".%06d", number(of_day.nanos / 1000));
  return text;
}

Result<Value> timestamp_at(const arrow::Array& array, std::int64_t i) {
  const auto& type = static_cast<const arrow::TimestampType&>(*array.type());
  Moment moment = moment_of(static_cast<const arrow::TimestampArray&>(array).Value(i), type.unit());
  const std::int64_t of_day = (moment.seconds % kSecondsOfDay + kSecondsOfDay) % kSecondsOfDay;
  EVALCAR_ASSIGN_OR_RETURN(const Value text, date_of((moment.seconds - of_day) / kSecondsOfDay));
  moment.seconds = of_day;
  return Value(text.get<std::string>() + " " +
               time_of(moment, type.unit() == arrow::TimeUnit::NANO) +
               (type.timezone().empty() ? "" : "+00:00"));
}

template <typename TimeType>
Value time_at(const arrow::Array& array, std::int64_t i) {
  const auto& type = static_cast<const TimeType&>(*array.type());
  const std::int64_t count =
      static_cast<const typename arrow::TypeTraits<TimeType>::ArrayType&>(array).Value(i);
  return Value(time_of(moment_of(count, type.unit()), /*shows_nanos=*/false));
}

// What Python writes in a list as our Value does: of a date its list shows the constructor.
bool has_value_in_list(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::STRUCT:
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
      return std::ranges::all_of(
          type.fields(), [](const auto& field) { return has_value_in_list(*field->type()); });
    case arrow::Type::DICTIONARY:
      return has_value_in_list(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
      return true;
    default:
      return arrow::is_integer(type.id());
  }
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
  const bool is_list = type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST ||
                       type.id() == arrow::Type::FIXED_SIZE_LIST;
  return is_list ? *type.field(0)->type() : type;
}

bool has_value(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::TIMESTAMP: {
      const std::string& zone = static_cast<const arrow::TimestampType&>(type).timezone();
      return zone.empty() || zone == "UTC";
    }
    case arrow::Type::DATE32:
    case arrow::Type::DATE64:
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
      return true;
    default:
      return has_value_in_list(type);
  }
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
    case arrow::Type::FIXED_SIZE_LIST:
      return list_at<arrow::FixedSizeListArray>(array, i, depth);
    case arrow::Type::STRUCT:
      return struct_at(array, i, depth);
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return value_at(*dictionary.dictionary(), dictionary.GetValueIndex(i), depth + 1);
    }
    case arrow::Type::NA:
      return Value(nullptr);
    case arrow::Type::DATE32:
      return date_of(static_cast<const arrow::Date32Array&>(array).Value(i));
    case arrow::Type::DATE64:
      return date_of(static_cast<const arrow::Date64Array&>(array).Value(i) / 1000 / kSecondsOfDay);
    case arrow::Type::TIME32:
      return time_at<arrow::Time32Type>(array, i);
    case arrow::Type::TIME64:
      return time_at<arrow::Time64Type>(array, i);
    case arrow::Type::DECIMAL128:
      return Value(static_cast<const arrow::Decimal128Array&>(array).FormatValue(i));
    case arrow::Type::DECIMAL256:
      return Value(static_cast<const arrow::Decimal256Array&>(array).FormatValue(i));
    case arrow::Type::TIMESTAMP:
      if (has_value(*array.type())) return timestamp_at(array, i);
      [[fallthrough]];
    default: {  // for the log alone: no task may read it (has_value)
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
    case arrow::Type::FIXED_SIZE_LIST:
      return append_list(static_cast<const arrow::FixedSizeListArray&>(array));
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
