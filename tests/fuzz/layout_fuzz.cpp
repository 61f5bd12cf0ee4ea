// A whole checkpoint folder out of the input: the first byte chooses the files, which the rest
// fills, cut at NEWLINE NEWLINE NEWLINE. Whatever is in them, the folder is judged, and a plan that
// is made reads exactly as many bytes as it says, or fails.
#include <string>
#include <vector>

#include "store/base/clock.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/fuzz/checkpoint_folder.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

namespace {

using namespace evalcar;

const std::vector<std::vector<const char*>> kFolders = {
    {"model.safetensors", "config.json", "trainer_state.json"},
    {"model.safetensors.index.json", "a.safetensors", "b.safetensors", "config.json"},
    {"pytorch_model_fsdp_0/model_world_size_1_rank_0.pt", "config.json"},
    {"pytorch_model_fsdp_0/model_world_size_2_rank_0.pt",
     "pytorch_model_fsdp_0/model_world_size_2_rank_1.pt", "config.json"},
    {"pytorch_model.bin", "config.json"},
    {"global_step5/mp_rank_00_model_states.pt",
     "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", "config.json"},
    {"global_step5/zero_pp_rank_0_mp_rank_00_model_states.pt",
     "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", "config.json"},
    {"shard-00001-model-00001-of-00002.safetensors", "shard-00001-model-00002-of-00002.safetensors",
     "config.json"},
};
constexpr std::size_t kFirstOfTorch = 2;  // these hold torch.save files
constexpr std::size_t kLastOfTorch = 6;

/// A torch.save file may hold the cut, so two of them are cut at the middle instead.
std::vector<std::string> parts_of(std::string_view text, std::size_t choice) {
  std::vector<std::string> parts;
  if (choice >= kFirstOfTorch && choice <= kLastOfTorch) {
    const std::size_t shards = kFolders[choice].size() - 1;
    for (std::size_t i = 0; i < shards; ++i) {
      parts.emplace_back(text.substr(i * (text.size() / shards), text.size() / shards));
    }
    parts.emplace_back("{}");
    return parts;
  }
  while (parts.size() + 1 < kFolders[choice].size()) {
    const std::size_t cut = text.find(std::string_view("\n\n\n", 3));
    parts.emplace_back(text.substr(0, cut));
    text.remove_prefix(cut == std::string_view::npos ? text.size() : cut + 3);
  }
  parts.emplace_back(text);
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t choice = data[0] % kFolders.size();
  const auto parts = parts_of(fuzz::as_text(data + 1, size - 1), choice);
  const test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  for (std::size_t i = 0; i < kFolders[choice].size(); ++i) {
    files.put_file(std::string("/checkpoint-5/") + kFolders[choice][i], parts[i]);
  }
  files.put_file("/checkpoint-5/latest", "global_step5");
  // Twice: a bfloat16 buffer becomes float32.
  fuzz::check_checkpoint(files, "/checkpoint-5", 2 * size);
  return 0;
}
