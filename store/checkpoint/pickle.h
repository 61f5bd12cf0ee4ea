// A pickle machine that builds data and nothing else. It knows the opcodes that torch.save writes
// (protocols 2 to 4) and exact lists of global names; a name is a label here, never something
// that is called. Objects live in an arena and refer to each other by number, so a cyclic graph (a
// DeviceMesh points at itself) is harmless, and nothing here recurses over it.
// Reference: CPython's pickletools; reference files of torch 2.1 to 2.15.
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
  kRebuildParameterWithState,
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
  kFlatLayout,
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

/// Runs of node numbers, which never move. Their blocks begin small, since most pickles are.
class NodeRuns {
 public:
  /// Where the run begins; absent where all blocks are full.
  std::optional<std::uint32_t> add(std::span<const std::uint32_t> run);
  std::span<const std::uint32_t> run(std::uint32_t first, std::size_t count) const {
    return {blocks_[first >> kOffsetBits].get() + (first & kOffsetMask), count};
  }
  /// Of all blocks.
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr unsigned kOffsetBits = 16;
  static constexpr std::uint32_t kOffsetMask = (1U << kOffsetBits) - 1;

  std::vector<std::unique_ptr<std::uint32_t[]>> blocks_;
  std::size_t size_ = 0;      // of the last block, in numbers
  std::size_t capacity_ = 0;  // of it
  std::size_t bytes_ = 0;
};

/// A parsed pickle. Nodes are numbered; a number stays valid as long as the Pickle. Reading it is
/// thread-safe.
class Pickle {
 public:
  using NodeId = std::uint32_t;

  /// Parses one pickle that fills `bytes` exactly. kCorruption with the byte for everything that is
  /// malformed, unknown, not on the list, or beyond the limits: a stack of a million objects, and
  /// 24 MiB and three times the file's size of memory for what it makes (real files take less than
  /// twice their size).
  static Result<Pickle> parse(std::string bytes, std::string_view where,
                              PickleNames names = PickleNames::kTensors);

  NodeId root() const { return root_; }
  PickleKind kind(NodeId id) const { return is_small(id) ? PickleKind::kInteger : nodes_[id].kind; }
  /// Of kInteger, and 0 or 1 of kBool.
  std::int64_t integer(NodeId id) const;
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
  PickleGlobal made_by(NodeId id) const { return nodes_[id].global; }
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
  /// What it takes in memory beside the pickle's own bytes.
  std::size_t memory_bytes() const;

  /// The value at a text key of a small dict (at most 64 entries); absent for anything else.
  std::optional<NodeId> find(NodeId dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  static constexpr NodeId kNoNode = UINT32_MAX;
  // A number from 0 to 2^31 - 2 is its own id, with this bit, and no node: metadata is full of
  // them.
  static constexpr NodeId kSmallInteger = NodeId{1} << 31U;

  // Meaning of first and count by kind: text: offset and size in bytes_. Tuple, and a list or dict
  // that was filled at once: range of runs_. One that grew after that (`grown`): index into grown_.
  // Bool: the value; integer: its low and high half. Object: state (or kNoNode) and argument tuple,
  // and `global` is what made it. Persistent: the id.
  struct Node {
    PickleKind kind = PickleKind::kNone;
    PickleGlobal global{};
    DType dtype{};
    bool grown = false;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  static_assert(sizeof(Node) == 12);

  Pickle() = default;
  static bool is_small(NodeId id) { return (id & kSmallInteger) != 0; }

  std::unique_ptr<const std::string> bytes_;
  std::deque<Node> nodes_;  // a vector would hold them three times over while it grows
  NodeRuns runs_;
  std::deque<std::vector<NodeId>> grown_;
  NodeId root_ = kNoNode;
};

}  // namespace evalcar::checkpoint
