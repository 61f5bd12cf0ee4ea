// An adapter over a base model out of the input: up to four parts, cut at NEWLINE NEWLINE NEWLINE,
// are adapter_config.json, the adapter's weights (safetensors, or a ZIP as .bin), the base's, and
// its config.json. The configuration is parsed alone too; a plan that is made reads as many bytes
// as it says.
#include <cstdlib>
#include <string>

#include "store/base/clock.h"
#include "store/checkpoint/lora_config.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/fuzz/checkpoint_folder.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace evalcar;
  std::string_view rest = fuzz::as_text(data, size);
  const auto take = [&] {
    const std::size_t cut = rest.find("\n\n\n");
    const std::string part(rest.substr(0, cut));
    rest.remove_prefix(cut == std::string_view::npos ? rest.size() : cut + 3);
    return part;
  };
  const std::string config = take();
  if (const auto parsed = checkpoint::parse_lora_config(config, "input"); parsed.has_value()) {
    for (const char* const module : {"model.layers.0.self_attn.q_proj", "a", ""}) {
      if (parsed->rank_of(module) < 1) std::abort();
      (void)parsed->scale_of(module);
    }
  }
  const test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file("/checkpoint-5/adapter_config.json", config);
  const std::string weights = take();
  const bool is_zip = weights.starts_with("PK");
  files.put_file(std::string("/checkpoint-5/adapter_model.") + (is_zip ? "bin" : "safetensors"),
                 weights);
  files.put_file("/base/model.safetensors", take());
  const std::string base_config = take();
  files.put_file("/base/config.json", base_config.empty() ? "{}" : base_config);
  checkpoint::LayoutOptions options;
  options.base_model = "/base";
  fuzz::check_checkpoint(files, "/checkpoint-5", 2 * size, options);
  return 0;
}
