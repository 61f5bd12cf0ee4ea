#include "store/checkpoint/dtype.h"

#include <array>

namespace evalcar::checkpoint {
namespace {

struct Row {
  DType dtype;
  std::size_t size_bytes;
  std::string_view torch_name;
  std::string_view safetensors_name;  // empty: the format has no such type
};

// Indexed by the enumerator. Names: torch.dtype, and `Dtype` of safetensors 0.8.
constexpr std::array<Row, 22> kRows{{
    {DType::kFloat64, 8, "float64", "F64"},
    {DType::kFloat32, 4, "float32", "F32"},
    {DType::kFloat16, 2, "float16", "F16"},
    {DType::kBFloat16, 2, "bfloat16", "BF16"},
    {DType::kFloat8E4M3FN, 1, "float8_e4m3fn", "F8_E4M3"},
    {DType::kFloat8E5M2, 1, "float8_e5m2", "F8_E5M2"},
    {DType::kFloat8E4M3FNUZ, 1, "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {DType::kFloat8E5M2FNUZ, 1, "float8_e5m2fnuz", "F8_E5M2FNUZ"},
    {DType::kFloat8E8M0FNU, 1, "float8_e8m0fnu", "F8_E8M0"},
    {DType::kFloat4E2M1FNX2, 1, "float4_e2m1fn_x2", "F4"},
    {DType::kInt64, 8, "int64", "I64"},
    {DType::kInt32, 4, "int32", "I32"},
    {DType::kInt16, 2, "int16", "I16"},
    {DType::kInt8, 1, "int8", "I8"},
    {DType::kUInt64, 8, "uint64", "U64"},
    {DType::kUInt32, 4, "uint32", "U32"},
    {DType::kUInt16, 2, "uint16", "U16"},
    {DType::kUInt8, 1, "uint8", "U8"},
    {DType::kBool, 1, "bool", "BOOL"},
    {DType::kComplex32, 4, "complex32", ""},
    {DType::kComplex64, 8, "complex64", "C64"},
    {DType::kComplex128, 16, "complex128", ""},
}};

const Row& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

bool packs_two(DType dtype) { return dtype == DType::kFloat4E2M1FNX2; }

std::size_t dtype_size(DType dtype) { return row(dtype).size_bytes; }

std::string_view dtype_name(DType dtype) { return row(dtype).torch_name; }

std::optional<DType> dtype_from_name(std::string_view torch_name) {
  for (const Row& candidate : kRows) {
    if (candidate.torch_name == torch_name) return candidate.dtype;
  }
  return std::nullopt;
}

std::string_view safetensors_dtype_name(DType dtype) { return row(dtype).safetensors_name; }

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const Row& candidate : kRows) {
    if (candidate.safetensors_name == name) return candidate.dtype;
  }
  return std::nullopt;
}

}  // namespace evalcar::checkpoint
