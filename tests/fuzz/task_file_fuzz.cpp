// A task file (TOML), and a template's columns.
#include <string>

#include "evaluator/tasks/definition.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  evalcar::tasks::Problems problems;
  (void)evalcar::tasks::parse_definition(evalcar::fuzz::as_text(data, size), "x.toml", problems);
  return 0;
}
