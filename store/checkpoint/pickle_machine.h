// The machine behind Pickle::parse: runs opcodes over a stack of node numbers. Private to the
// reader of pickles.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/checkpoint/pickle.h"

namespace evalcar::checkpoint {

/// What a key's tuple, and a dict that is looked into by name, may hold.
inline constexpr std::size_t kMaxSmallDict = 64;

/// Used once. Each step returns what is wrong, or nothing.
class PickleMachine {
 public:
  PickleMachine(std::string bytes, std::string_view where, PickleNames names);
  Result<Pickle> run();

 private:
  using NodeId = Pickle::NodeId;
  using Node = Pickle::Node;
  // Made at the beginning; whatever is equal to one of them is it.
  static constexpr NodeId kNoneNode = 0;
  static constexpr NodeId kFalseNode = 1;
  static constexpr NodeId kTrueNode = 2;
  static constexpr NodeId kRealNode = 3;  // its value is not kept
  static constexpr NodeId kEmptyTupleNode = 4;

  // pickle_machine.cpp: bytes, stack, memo, scalars.
  Error failure(std::size_t at, std::string_view wrong) const;
  /// Of everything that grows with the file, but for the stack, which has a limit of its own.
  std::size_t memory_bytes() const {
    return pickle_.nodes_.size() * sizeof(Node) + pickle_.runs_.bytes() + grown_bytes_ +
           memo_.size() * sizeof(NodeId);
  }
  NodeId add(const Node& node) {
    pickle_.nodes_.push_back(node);
    return static_cast<NodeId>(pickle_.nodes_.size() - 1);
  }
  Node& node(NodeId id) { return pickle_.nodes_[id]; }
  const char* push(NodeId id) {
    stack_.push_back(id);
    return nullptr;
  }
  const char* push_new(const Node& fresh) { return push(add(fresh)); }
  const char* push_integer(std::int64_t value);
  /// Little-endian unsigned integer of `size` bytes.
  std::optional<std::uint64_t> take(std::size_t size);
  /// Objects above the innermost mark, which is closed.
  std::optional<std::vector<NodeId>> pop_to_mark();
  /// Nothing below the innermost mark can be popped.
  bool holds(std::size_t count) const {
    return stack_.size() - (marks_.empty() ? 0 : marks_.back()) >= count;
  }
  NodeId pop() {
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  const char* step();
  const char* proto();
  const char* stop();
  const char* global_lines();
  const char* stack_global();
  const char* push_global(std::string_view module, std::string_view name);
  /// The key of the saved dict's entry whose value is being read, for errors; empty if there is
  /// none.
  std::string_view entry_in_hand() const;
  const char* put(std::optional<std::uint64_t> index);
  const char* get(std::optional<std::uint64_t> index);
  const char* unicode(std::optional<std::uint64_t> size);
  const char* integer(std::optional<std::uint64_t> value);
  const char* binint();
  /// A two's complement integer of n bytes; more than 64 bits are refused.
  const char* long1();

  // pickle_objects.cpp: containers and objects.
  const char* tuple(std::span<const NodeId> elements);
  const char* tuple_of(std::size_t count);
  const char* tuple_to_mark();
  /// Adds elements to a list, or keys and values to a dict.
  const char* extend(NodeId id, std::span<const NodeId> elements);
  const char* append(std::span<const NodeId> elements);
  const char* append_one();
  const char* append_to_mark();
  bool is_scalar(NodeId id) const;
  bool is_key(NodeId id) const;
  const char* set(std::span<const NodeId> pairs);
  const char* set_one();
  const char* set_to_mark();
  /// Pops a global and an argument tuple.
  const char* take_call(NodeId& callable, NodeId& arguments);
  const char* push_object(NodeId callable, NodeId arguments);
  const char* reduce();
  const char* newobj();
  /// The state is kept beside the object as data. That of an OrderedDict (`_metadata` of a
  /// state_dict) is dropped.
  const char* build();
  const char* persistent();

  Pickle pickle_;
  PickleNames names_;
  std::size_t max_memory_bytes_;
  std::string_view bytes_;
  std::string_view where_;
  std::size_t position_ = 0;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;
  std::deque<NodeId> memo_;
  std::uint64_t next_memo_ = 0;
  std::size_t grown_bytes_ = 0;
  bool seen_proto_ = false;
  bool stopped_ = false;
  std::string detail_;
};

}  // namespace evalcar::checkpoint
