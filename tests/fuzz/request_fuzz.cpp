// What a command leaves for the agent, and what the agent answers. What is understood is written
// again in the same words.
#include <cstdlib>

#include "agent/request/request.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar::request;
  const std::string_view text = evalcar::fuzz::as_text(data, size);
  if (const auto request = decode_request(text); request.has_value()) {
    const auto again = decode_request(encode(*request));
    if (!again.has_value() || encode(*again) != encode(*request)) std::abort();
  }
  if (const auto answer = decode_answer(text); answer.has_value()) {
    const auto again = decode_answer(encode(*answer));
    if (!again.has_value() || encode(*again) != encode(*answer)) std::abort();
  }
  return 0;
}
