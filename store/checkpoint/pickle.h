// A pickle machine that builds data and nothing else. It knows the opcodes that torch.save writes
// (protocols 2 to 4) and exact lists of global names; a name is a label here, never something
// that is called. Objects live in an arena and refer to each other by number, so a cyclic graph (a
// DeviceMesh points at itself) is harmless, and nothing here recurses over it.
// Reference: CPython's pickletools; reference files of torch 2.1 to 2.11.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/dtype.h"

namespace evalcar::checkpoint {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInteger,
  kReal,
  kText,
  kTuple,
  kList,
  kDict,        ///< a dict or an OrderedDict
  kGlobal,      ///< a name of the list
  kObject,      ///< made by REDUCE or NEWOBJ: a global, its arguments, and a state set by BUILD
  kPersistent,  ///< torch's storage reference
};

/// What a global name means to us.
enum class PickleGlobal : std::uint8_t {
  kOrderedDict,
  kDType,
  kTypedStorage,
  kUntypedStorage,
  kSize,
  kDevice,
  kGetLayout,
  kRebuildTensor2,
  kRebuildTensor3,
  kRebuildParameter,
  kRebuildWrapperSubclass,
  kRebuildFromType2,
  kDTensor,
  kDTensorSpec,
  kTensorMeta,
  kShardOrderEntry,
  kShard,
  kReplicate,
  kStridedShard,
  kPartial,
  kDeviceMesh,
  kMeshLayout,
  kDcpMetadata,
  kDcpTensor,
  kDcpBytes,
  kDcpChunk,
  kDcpIndex,
  kDcpProperties,
  kDcpMemoryFormat,
  kGetattr,  ///< of a member of kDcpMemoryFormat or kDeepspeedZeroStage by its name, nothing else
  kDcpStorageInfo,
  kDcpStorageMeta,
  kPosixPath,
  kTensorClass,
  kSet,
  kDeepspeedLossScaler,
  kDeepspeedZeroStage,
  kDeepspeedFragment,
};

/// Which names a pickle may use.
enum class PickleNames : std::uint8_t {
  kTensors,      ///< data.pkl of torch.save
  kDcpMetadata,  ///< `.metadata` of torch.distributed.checkpoint
  kDeepspeed,    ///< data.pkl of DeepSpeed's *_states.pt: those of kTensors and some of DeepSpeed
};

/// A parsed pickle. Nodes are numbered; a number stays valid as long as the Pickle. Reading it is
/// thread-safe.
class Pickle {
 public:
  using NodeId = std::uint32_t;

  /// Parses one pickle that fills `bytes` exactly. kCorruption with the byte for everything that is
  /// malformed, unknown, not on the list, or beyond the limits: a million objects and one for every
  /// three bytes, which real files are far from; of tensors 8 million.
  static Result<Pickle> parse(std::string bytes, std::string_view where,
                              PickleNames names = PickleNames::kTensors);

  NodeId root() const { return root_; }
  PickleKind kind(NodeId id) const { return nodes_[id].kind; }
  /// Of kInteger, and 0 or 1 of kBool.
  std::int64_t integer(NodeId id) const { return nodes_[id].integer; }
  std::string_view text(NodeId id) const;
  /// Of kText: where it is in the pickle's bytes, for errors.
  std::size_t text_offset(NodeId id) const { return nodes_[id].first; }
  /// Of a tuple or list: its elements. Of a dict: key, value, key, value, …
  std::span<const NodeId> items(NodeId id) const;
  /// Of kGlobal.
  PickleGlobal global(NodeId id) const { return nodes_[id].global; }
  /// The element type of a kDType or kTypedStorage global.
  DType dtype(NodeId id) const { return nodes_[id].dtype; }
  /// Of kObject: what made it. Its arguments are a tuple.
  PickleGlobal made_by(NodeId id) const { return nodes_[nodes_[id].first].global; }
  std::span<const NodeId> arguments(NodeId id) const { return items(nodes_[id].count); }
  /// Of kObject: what BUILD set, if it did.
  std::optional<NodeId> state(NodeId id) const;
  /// Of kPersistent: the id that was given.
  NodeId persistent_id(NodeId id) const { return nodes_[id].first; }

  bool is_object(NodeId id, PickleGlobal made_by_global) const {
    return kind(id) == PickleKind::kObject && made_by(id) == made_by_global;
  }
  bool is_global(NodeId id, PickleGlobal which) const {
    return kind(id) == PickleKind::kGlobal && global(id) == which;
  }
  /// The value at a text key of a small dict (at most 64 entries); absent for anything else.
  std::optional<NodeId> find(NodeId dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  static constexpr NodeId kNoNode = UINT32_MAX;

  // Meaning of first and count by kind: text: offset and size in bytes_. Tuple: range of pool_.
  // List, dict: index into growing_ (kNoNode while empty). Object: callable and argument tuple.
  // Persistent: the id.
  struct Node {
    PickleKind kind = PickleKind::kNone;
    PickleGlobal global{};
    DType dtype{};
    std::uint32_t first = kNoNode;
    std::uint32_t count = 0;
    NodeId state = kNoNode;
    std::int64_t integer = 0;
  };

  Pickle() = default;
  std::unique_ptr<const std::string> bytes_;
  std::deque<Node> nodes_;  // a vector would hold them three times over while it grows
  std::vector<NodeId> pool_;
  std::deque<std::vector<NodeId>> growing_;
  NodeId root_ = kNoNode;
};

}  // namespace evalcar::checkpoint
