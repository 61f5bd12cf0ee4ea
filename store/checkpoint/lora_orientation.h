// How a base model stores the weights that an adapter updates: [out, in] as nn.Linear does, or
// [in, out] as GPT-2's Conv1D. A square weight does not tell; the others of the adapter do.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace evalcar::checkpoint {

class LoraOrientation {
 public:
  using Shape = std::vector<std::int64_t>;

  /// `fan_in_fan_out`: what adapter_config.json says of all of them.
  explicit LoraOrientation(bool fan_in_fan_out) : fan_in_fan_out_(fan_in_fan_out) {}

  /// A weight, and the factors lora_A [r, in] and lora_B [out, r] of its update.
  void see(const Shape& weight, const Shape& a, const Shape& b);
  /// Whether this weight is stored as [in, out]; after all were seen. Absent: it is square, and
  /// what the configuration says contradicts the shapes of others. False where one has not two
  /// dimensions.
  std::optional<bool> is_transposed(const Shape& weight, const Shape& a, const Shape& b) const;

 private:
  bool fan_in_fan_out_;
  bool some_plain_ = false;
  bool some_turned_ = false;
};

}  // namespace evalcar::checkpoint
