// Cells of Arrow arrays as JSON values.
#pragma once

#include <arrow/api.h>

#include "evaluator/tasks/python_json.h"

namespace evalcar::tasks {

/// Plain bytes, or a struct with a field `bytes`: what pictures come as.
bool is_bytes(const arrow::DataType& type);
bool is_image_struct(const arrow::DataType& type);
/// The items' type of a list, else the type itself.
const arrow::DataType& item_type(const arrow::DataType& type);

/// Element i of a validated array. kUnsupported for nesting deeper than 32 levels.
Result<Value> value_at(const arrow::Array& array, std::int64_t i, int depth = 0);

}  // namespace evalcar::tasks
