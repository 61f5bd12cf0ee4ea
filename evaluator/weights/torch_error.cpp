#include "evaluator/weights/torch_error.h"

#include "evaluator/weights/device_errors.h"

namespace evalcar::weights {

Error torch_error(std::string_view doing, std::string_view text, std::optional<int> code) {
  if (is_collective_error(text)) return collective_error(doing, text);
  return device_error(doing, text, code);
}

}  // namespace evalcar::weights
