// A picture: it is refused, or it has three bytes a pixel; the size read from the header alone is
// the decoded one.
#include <cstdlib>
#include <span>

#include "evaluator/vision/image.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const auto bytes = std::as_bytes(std::span(data, size));
  const vision::DecodeLimits limits{.max_pixels = 1 << 20};
  const auto image = vision::decode_image(bytes, "input", limits);
  const auto header = vision::read_image_size(bytes, "input", limits);
  if (image.has_value()) {
    const auto pixels = static_cast<std::size_t>(image.value().width) *
                        static_cast<std::size_t>(image.value().height);
    if (image.value().rgb.size() != 3 * pixels) std::abort();
    if (!header.has_value() || header.value().width != image.value().width ||
        header.value().height != image.value().height) {
      std::abort();
    }
  }
  return 0;
}
