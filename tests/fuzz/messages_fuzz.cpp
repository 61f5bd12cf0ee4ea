// A line from the other process: whatever it holds, it decodes to a message that encodes and
// decodes to itself, or to an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "store/protocol/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto message = evalcar::protocol::decode(line);
  if (message.has_value()) {
    const auto again = evalcar::protocol::decode(evalcar::protocol::encode(message.value()));
    if (!again.has_value() || !(again.value() == message.value())) {
      std::abort();
    }
  }
  return 0;
}
