// The element types that checkpoints hold, under torch's names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace evalcar::checkpoint {

enum class DType : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kFloat4E2M1FNX2,  ///< one byte, which holds two numbers
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt64,
  kUInt32,
  kUInt16,
  kUInt8,
  kBool,
  kComplex32,
  kComplex64,
  kComplex128,
};

/// Whether one element holds two numbers: torch counts such elements, safetensors the numbers (in
/// the last dimension).
bool packs_two(DType dtype);
/// Bytes of one element.
std::size_t dtype_size(DType dtype);
/// torch's name: "float32", "bfloat16", "float8_e4m3fn", …
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view torch_name);
/// "F32", "BF16", … of the safetensors format.
std::string_view safetensors_dtype_name(DType dtype);
std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace evalcar::checkpoint
