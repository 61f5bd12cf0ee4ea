// A chat template's source, rendered with messages of every form.
#include "evaluator/text/chat_template.h"
#include "tests/fuzz/bytes_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  const auto chat = text::ChatTemplate::parse(fuzz::as_text(data, size), "input");
  if (!chat) return 0;
  (void)chat->render_json(R"({"messages": [{"role": "system", "content": "Be brief.\n"},
      {"role": "user", "content": [{"type": "image", "image": "p"}, {"type": "text", "text": "é?"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
       "arguments": {"a": [1, 2.5, null]}}, "id": "abcdefghi"}]}, {"role": "tool", "content": "1"}],
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
      "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  return 0;
}
