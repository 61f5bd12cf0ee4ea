// What the HTTP API reads by itself: targets, Host and Authorization fields, networks, JSON bodies.
// The first byte chooses.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "agent/http/access.h"
#include "agent/http/fields.h"
#include "agent/http/json_body.h"
#include "agent/http/network.h"
#include "agent/http/target.h"

using namespace evalcar::http;

namespace {

void read_body(std::string_view text) {
  const auto body = parse_body(text);
  if (!body.has_value()) return;
  Fields fields(*body);
  (void)fields.text("model");
  (void)fields.text_list("tasks");
  (void)fields.optional_object("model_args");
  (void)fields.optional_integer("num_fewshot");
  (void)fields.optional_number("limit");
  (void)fields.optional_integer_or_text("batch_size");
  (void)fields.boolean("log_samples", true);
  if (fields.response().body.size() > 100'000) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      (void)parse_target(text);
      break;
    case 1:
      (void)host_name(text);
      break;
    case 2:
      (void)secret_of(text);
      break;
    case 3:
      (void)parse_network(text);
      (void)parse_endpoint(text);
      break;
    default:
      read_body(text);
  }
  return 0;
}
