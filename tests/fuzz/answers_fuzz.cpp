// What a model says, through every scorer; and an options column.
#include <string>
#include <vector>

#include "evaluator/metrics/mmmu.h"
#include "evaluator/metrics/python_number.h"
#include "evaluator/metrics/python_text.h"
#include "evaluator/metrics/text_scorers.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar::metrics;
  if (size > 4096) return 0;  // the scorers are quadratic at worst
  const std::string text(evalcar::fuzz::as_text(data, size));
  const std::vector<std::string> references = {text.substr(0, size / 2), "red cat"};
  (void)anls(references, text);
  (void)vqa_accuracy(references, text);
  (void)exact_match(references, text, {.ignore_case = true, .ignore_punctuation = true});
  (void)contains_match(references, text, true);
  (void)parse_multiple_choice(text, references);
  (void)open_answer_is_correct(references, parse_open_response(text));
  (void)subject_of_id(text);
  (void)repr(strip_reasoning_tags(text));
  (void)parse_float(decode_utf8(text));
  if (const auto list = parse_python_list(text)) (void)parse_multiple_choice(text, *list);
  return 0;
}
