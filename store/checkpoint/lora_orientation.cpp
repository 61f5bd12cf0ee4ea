#include "store/checkpoint/lora_orientation.h"

namespace evalcar::checkpoint {
namespace {

using Shape = LoraOrientation::Shape;

bool are_matrices(const Shape& weight, const Shape& a, const Shape& b) {
  return weight.size() == 2 && a.size() == 2 && b.size() == 2;
}

bool fits_plain(const Shape& weight, const Shape& a, const Shape& b) {
  return weight[0] == b[0] && weight[1] == a[1];
}

bool fits_turned(const Shape& weight, const Shape& a, const Shape& b) {
  return weight[0] == a[1] && weight[1] == b[0];
}

}  // namespace

void LoraOrientation::see(const Shape& weight, const Shape& a, const Shape& b) {
  if (!are_matrices(weight, a, b)) return;
  const bool plain = fits_plain(weight, a, b);
  const bool turned = fits_turned(weight, a, b);
  if (plain != turned) (turned ? some_turned_ : some_plain_) = true;
}

std::optional<bool> LoraOrientation::is_transposed(const Shape& weight, const Shape& a,
                                                   const Shape& b) const {
  if (!are_matrices(weight, a, b)) return false;
  const bool turned = fits_turned(weight, a, b);
  if (fits_plain(weight, a, b) != turned) return turned;
  if (fan_in_fan_out_ ? some_plain_ : some_turned_) return std::nullopt;
  return fan_in_fan_out_;
}

}  // namespace evalcar::checkpoint
