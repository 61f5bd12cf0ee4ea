#include "store/checkpoint/pickle_globals.h"

#include <array>
#include <span>

namespace evalcar::checkpoint {
namespace {

struct Row {
  std::string_view module;
  std::string_view name;
  PickleGlobal global;
};

// As seen in files of torch 2.1 to 2.15; the modules moved between releases.
constexpr std::array kRows = {
    Row{"collections", "OrderedDict", PickleGlobal::kOrderedDict},
    Row{"torch", "Size", PickleGlobal::kSize},
    Row{"torch", "device", PickleGlobal::kDevice},
    Row{"torch.serialization", "_get_layout", PickleGlobal::kGetLayout},
    Row{"torch.storage", "UntypedStorage", PickleGlobal::kUntypedStorage},
    Row{"torch._utils", "_rebuild_tensor_v2", PickleGlobal::kRebuildTensor2},
    Row{"torch._utils", "_rebuild_tensor_v3", PickleGlobal::kRebuildTensor3},
    Row{"torch._utils", "_rebuild_parameter", PickleGlobal::kRebuildParameter},
    Row{"torch._utils", "_rebuild_parameter_with_state", PickleGlobal::kRebuildParameterWithState},
    Row{"torch._utils", "_rebuild_wrapper_subclass", PickleGlobal::kRebuildWrapperSubclass},
    Row{"torch._tensor", "_rebuild_from_type_v2", PickleGlobal::kRebuildFromType2},
    Row{"torch.distributed.tensor", "DTensor", PickleGlobal::kDTensor},
    Row{"torch.distributed._tensor.api", "DTensor", PickleGlobal::kDTensor},
    Row{"torch.distributed.tensor._dtensor_spec", "DTensorSpec", PickleGlobal::kDTensorSpec},
    Row{"torch.distributed.tensor._dtensor_spec", "TensorMeta", PickleGlobal::kTensorMeta},
    Row{"torch.distributed.tensor._dtensor_spec", "ShardOrderEntry",
        PickleGlobal::kShardOrderEntry},
    Row{"torch.distributed._tensor.placement_types", "DTensorSpec", PickleGlobal::kDTensorSpec},
    Row{"torch.distributed._tensor.placement_types", "TensorMeta", PickleGlobal::kTensorMeta},
    Row{"torch.distributed._tensor.placement_types", "Shard", PickleGlobal::kShard},
    Row{"torch.distributed._tensor.placement_types", "Replicate", PickleGlobal::kReplicate},
    Row{"torch.distributed._tensor.placement_types", "_StridedShard", PickleGlobal::kStridedShard},
    Row{"torch.distributed._tensor.placement_types", "Partial", PickleGlobal::kPartial},
    Row{"torch.distributed.tensor.placement_types", "Shard", PickleGlobal::kShard},
    Row{"torch.distributed.tensor.placement_types", "Replicate", PickleGlobal::kReplicate},
    Row{"torch.distributed.tensor.placement_types", "_StridedShard", PickleGlobal::kStridedShard},
    Row{"torch.distributed.tensor.placement_types", "Partial", PickleGlobal::kPartial},
    Row{"torch.distributed.device_mesh", "DeviceMesh", PickleGlobal::kDeviceMesh},
    Row{"torch.distributed._mesh_layout", "_MeshLayout", PickleGlobal::kMeshLayout},
    Row{"torch.distributed._mesh_layout", "_FlatLayout", PickleGlobal::kFlatLayout},
};

// As seen in .metadata of torch 2.1 to 2.15. Python 3.13 moved PosixPath for a while.
constexpr std::array kDcpRows = {
    Row{"torch", "Size", PickleGlobal::kSize},
    Row{"torch.serialization", "_get_layout", PickleGlobal::kGetLayout},
    Row{"torch.distributed.checkpoint.metadata", "Metadata", PickleGlobal::kDcpMetadata},
    Row{"torch.distributed.checkpoint.metadata", "TensorStorageMetadata", PickleGlobal::kDcpTensor},
    Row{"torch.distributed.checkpoint.metadata", "BytesStorageMetadata", PickleGlobal::kDcpBytes},
    Row{"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata", PickleGlobal::kDcpChunk},
    Row{"torch.distributed.checkpoint.metadata", "MetadataIndex", PickleGlobal::kDcpIndex},
    Row{"torch.distributed.checkpoint.metadata", "TensorProperties", PickleGlobal::kDcpProperties},
    Row{"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING",
        PickleGlobal::kDcpMemoryFormat},
    Row{"torch.distributed.checkpoint.metadata", "StorageMeta", PickleGlobal::kDcpStorageMeta},
    Row{"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties",
        PickleGlobal::kDcpProperties},
    Row{"torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING",
        PickleGlobal::kDcpMemoryFormat},
    Row{"torch.distributed.checkpoint.filesystem", "_StorageInfo", PickleGlobal::kDcpStorageInfo},
    // How Python 3.11.0 to 3.11.3 writes a member of an enumeration.
    Row{"builtins", "getattr", PickleGlobal::kGetattr},
    Row{"pathlib", "PosixPath", PickleGlobal::kPosixPath},
    Row{"pathlib._local", "PosixPath", PickleGlobal::kPosixPath},
};

// Beside the tensors, as seen in files of DeepSpeed 0.19; sets are in files of older releases.
constexpr std::array kDeepspeedRows = {
    Row{"torch", "Tensor", PickleGlobal::kTensorClass},
    Row{"torch.nn.parameter", "Parameter", PickleGlobal::kTensorClass},
    // How Python 3.11.0 to 3.11.3 writes a member of an enumeration.
    Row{"__builtin__", "getattr", PickleGlobal::kGetattr},
    Row{"__builtin__", "set", PickleGlobal::kSet},
    Row{"builtins", "set", PickleGlobal::kSet},
    Row{"deepspeed.runtime.fp16.loss_scaler", "LossScaler", PickleGlobal::kDeepspeedLossScaler},
    Row{"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler",
        PickleGlobal::kDeepspeedLossScaler},
    Row{"deepspeed.runtime.zero.config", "ZeroStageEnum", PickleGlobal::kDeepspeedZeroStage},
    Row{"deepspeed.utils.tensor_fragment", "fragment_address", PickleGlobal::kDeepspeedFragment},
};

struct StorageRow {
  std::string_view name;
  DType dtype;
};

constexpr std::array kStorages = {
    StorageRow{"FloatStorage", DType::kFloat32},
    StorageRow{"DoubleStorage", DType::kFloat64},
    StorageRow{"HalfStorage", DType::kFloat16},
    StorageRow{"BFloat16Storage", DType::kBFloat16},
    StorageRow{"LongStorage", DType::kInt64},
    StorageRow{"IntStorage", DType::kInt32},
    StorageRow{"ShortStorage", DType::kInt16},
    StorageRow{"CharStorage", DType::kInt8},
    StorageRow{"ByteStorage", DType::kUInt8},
    StorageRow{"BoolStorage", DType::kBool},
    StorageRow{"ComplexFloatStorage", DType::kComplex64},
    StorageRow{"ComplexDoubleStorage", DType::kComplex128},
};

}  // namespace

std::optional<KnownGlobal> known_global(PickleNames names, std::string_view module,
                                        std::string_view name) {
  const bool tensors = names != PickleNames::kDcpMetadata;
  const std::span<const Row> rows = tensors ? std::span<const Row>(kRows) : kDcpRows;
  const auto find_in = [&](std::span<const Row> list) -> std::optional<KnownGlobal> {
    for (const Row& row : list) {
      if (row.module == module && row.name == name) return KnownGlobal{row.global, {}};
    }
    return std::nullopt;
  };
  if (const auto found = find_in(rows)) return found;
  if (names == PickleNames::kDeepspeed) {
    if (const auto found = find_in(kDeepspeedRows)) return found;
  }
  if (module != "torch") return std::nullopt;
  if (tensors) {
    for (const StorageRow& row : kStorages) {
      if (row.name == name) return KnownGlobal{PickleGlobal::kTypedStorage, row.dtype};
    }
  }
  if (const auto dtype = dtype_from_name(name)) return KnownGlobal{PickleGlobal::kDType, *dtype};
  return std::nullopt;
}

bool may_reduce(PickleGlobal global) {
  switch (global) {
    case PickleGlobal::kOrderedDict:
    case PickleGlobal::kSize:
    case PickleGlobal::kDevice:
    case PickleGlobal::kGetLayout:
    case PickleGlobal::kRebuildTensor2:
    case PickleGlobal::kRebuildTensor3:
    case PickleGlobal::kRebuildParameter:
    case PickleGlobal::kRebuildParameterWithState:
    case PickleGlobal::kRebuildFromType2:
    case PickleGlobal::kDcpMemoryFormat:
    case PickleGlobal::kGetattr:
    case PickleGlobal::kPosixPath:
    case PickleGlobal::kSet:
    case PickleGlobal::kDeepspeedZeroStage:
      return true;
    default:
      return false;
  }
}

bool may_newobj(PickleGlobal global) {
  switch (global) {
    case PickleGlobal::kDTensorSpec:
    case PickleGlobal::kTensorMeta:
    case PickleGlobal::kShardOrderEntry:
    case PickleGlobal::kShard:
    case PickleGlobal::kReplicate:
    case PickleGlobal::kStridedShard:
    case PickleGlobal::kPartial:
    case PickleGlobal::kDeviceMesh:
    case PickleGlobal::kMeshLayout:
    case PickleGlobal::kFlatLayout:
    case PickleGlobal::kDcpMetadata:
    case PickleGlobal::kDcpTensor:
    case PickleGlobal::kDcpBytes:
    case PickleGlobal::kDcpChunk:
    case PickleGlobal::kDcpIndex:
    case PickleGlobal::kDcpProperties:
    case PickleGlobal::kDcpStorageInfo:
    case PickleGlobal::kDcpStorageMeta:
    case PickleGlobal::kDeepspeedLossScaler:
    case PickleGlobal::kDeepspeedFragment:
      return true;
    default:
      return false;
  }
}

bool has_tuple_state(PickleGlobal global) { return global == PickleGlobal::kDcpProperties; }

bool is_hashable(PickleGlobal global) { return global == PickleGlobal::kDcpIndex; }

}  // namespace evalcar::checkpoint
