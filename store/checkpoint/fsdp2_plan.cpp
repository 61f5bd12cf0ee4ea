#include "store/checkpoint/folder.h"
namespace evalcar::checkpoint {
Result<Plan> plan_fsdp2(const FileSystem&, const std::string& shard_folder, WeightsKind) {
  return make_error(ErrorCode::kUnsupported, shard_folder + ": sharded weights are not read yet");
}
}  // namespace evalcar::checkpoint
