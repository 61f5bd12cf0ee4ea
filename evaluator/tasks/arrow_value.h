// Cells of Arrow arrays as JSON values, and as pictures.
#pragma once

#include <arrow/api.h>

#include <string>
#include <vector>

#include "evaluator/tasks/python_json.h"
#include "store/base/file_system.h"

namespace evalcar::tasks {

/// Plain bytes, or a struct with a field `bytes`: what pictures come as.
bool is_bytes(const arrow::DataType& type);
bool is_image_struct(const arrow::DataType& type);
/// The items' type of a list, else the type itself.
const arrow::DataType& item_type(const arrow::DataType& type);
/// Whether value_at() gives what Hugging Face datasets gives, and lists of it are written as Python
/// writes them: not of a duration or a map, say, nor of a list of dates, nor of times of another
/// zone than UTC.
bool has_value(const arrow::DataType& type);

/// Element i of a validated array; dates, times and decimals as Python's str() of them. Of a type
/// without has_value() Arrow's own text. kUnsupported for nesting deeper than 32 levels and years
/// that Python does not know.
Result<Value> value_at(const arrow::Array& array, std::int64_t i, int depth = 0);

/// Adds the encoded pictures of element i: bytes, struct<bytes, path>, or a name relative to the
/// data file `path`; each alone or in a list. kInvalidArgument for another type.
Status append_images(const FileSystem& files, const arrow::Array& array, std::int64_t i,
                     const std::string& path, std::vector<std::string>& out);

}  // namespace evalcar::tasks
