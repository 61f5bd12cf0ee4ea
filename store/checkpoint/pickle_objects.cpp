// The steps of PickleMachine that make tuples, lists, dicts and objects. Nothing is called: REDUCE,
// NEWOBJ and BUILD store their operands.
#include <algorithm>

#include "store/checkpoint/pickle_globals.h"
#include "store/checkpoint/pickle_machine.h"

namespace evalcar::checkpoint {

const char* PickleMachine::tuple(std::span<const NodeId> elements) {
  if (elements.empty()) return push(kEmptyTupleNode);
  const auto first = pickle_.runs_.add(elements);
  if (!first) return "too many objects";
  return push_new({.kind = PickleKind::kTuple,
                   .first = *first,
                   .count = static_cast<std::uint32_t>(elements.size())});
}

const char* PickleMachine::tuple_of(std::size_t count) {
  if (!holds(count)) return "tuple on too short a stack";
  const std::vector<NodeId> elements(stack_.end() - static_cast<std::ptrdiff_t>(count),
                                     stack_.end());
  stack_.resize(stack_.size() - count);
  return tuple(elements);
}

const char* PickleMachine::tuple_to_mark() {
  const auto elements = pop_to_mark();
  return elements ? tuple(*elements) : "TUPLE without a mark";
}

const char* PickleMachine::extend(NodeId id, std::span<const NodeId> elements) {
  Node& container = node(id);
  if (container.count == 0 && !container.grown) {
    const auto first = pickle_.runs_.add(elements);
    if (!first) return "too many objects";
    container.first = *first;
    container.count = static_cast<std::uint32_t>(elements.size());
    return nullptr;
  }
  constexpr std::size_t kElementBytes = 2 * sizeof(NodeId);  // it doubles where it is full
  if (!container.grown) {
    constexpr std::size_t kVectorBytes = 48;
    const auto filled = pickle_.runs_.run(container.first, container.count);
    container.grown = true;
    container.first = static_cast<std::uint32_t>(pickle_.grown_.size());
    pickle_.grown_.emplace_back(filled.begin(), filled.end());
    grown_bytes_ += kVectorBytes + filled.size() * kElementBytes;
  }
  std::vector<NodeId>& grown = pickle_.grown_[container.first];
  grown.insert(grown.end(), elements.begin(), elements.end());
  grown_bytes_ += elements.size() * kElementBytes;
  return nullptr;
}

const char* PickleMachine::append(std::span<const NodeId> elements) {
  if (!holds(1) || pickle_.kind(stack_.back()) != PickleKind::kList) {
    return "APPEND to what is not a list";
  }
  return extend(stack_.back(), elements);
}

const char* PickleMachine::append_one() {
  if (!holds(2)) return "APPEND on too short a stack";
  const NodeId element = pop();
  return append(std::span(&element, 1));
}

const char* PickleMachine::append_to_mark() {
  const auto elements = pop_to_mark();
  return elements ? append(*elements) : "APPENDS without a mark";
}

bool PickleMachine::is_scalar(NodeId id) const {
  const PickleKind kind = pickle_.kind(id);
  return kind == PickleKind::kNone || kind == PickleKind::kBool || kind == PickleKind::kInteger ||
         kind == PickleKind::kReal || kind == PickleKind::kText;
}

bool PickleMachine::is_key(NodeId id) const {
  if (pickle_.kind(id) == PickleKind::kObject) return is_hashable(pickle_.made_by(id));
  if (pickle_.kind(id) != PickleKind::kTuple) return is_scalar(id);
  const auto elements = pickle_.items(id);
  return elements.size() <= kMaxSmallDict &&
         std::all_of(elements.begin(), elements.end(), [&](NodeId e) { return is_scalar(e); });
}

const char* PickleMachine::set(std::span<const NodeId> pairs) {
  if (!holds(1) || pickle_.kind(stack_.back()) != PickleKind::kDict) {
    return "SETITEM on what is not a dict";
  }
  if (pairs.size() % 2 != 0) return "SETITEMS with an odd number of objects";
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (!is_key(pairs[i])) return "a dict key that cannot be one";
  }
  return extend(stack_.back(), pairs);
}

const char* PickleMachine::set_one() {
  if (!holds(3)) return "SETITEM on too short a stack";
  const NodeId value = pop();
  const NodeId key = pop();
  const NodeId pair[2] = {key, value};
  return set(pair);
}

const char* PickleMachine::set_to_mark() {
  const auto pairs = pop_to_mark();
  return pairs ? set(*pairs) : "SETITEMS without a mark";
}

const char* PickleMachine::take_call(NodeId& callable, NodeId& arguments) {
  if (!holds(2)) return "a call on too short a stack";
  arguments = pop();
  callable = pop();
  if (pickle_.kind(callable) != PickleKind::kGlobal) return "a call of what is not a global";
  if (pickle_.kind(arguments) != PickleKind::kTuple) return "a call without an argument tuple";
  return nullptr;
}

const char* PickleMachine::reduce() {
  NodeId callable = 0;
  NodeId arguments = 0;
  if (const char* wrong = take_call(callable, arguments)) return wrong;
  if (!may_reduce(node(callable).global)) return "REDUCE of a name that is not a function here";
  if (node(callable).global == PickleGlobal::kOrderedDict) {
    if (node(arguments).count != 0) return "OrderedDict with arguments";
    return push_new(Node{.kind = PickleKind::kDict});
  }
  if (node(callable).global == PickleGlobal::kGetattr) {
    const auto given = pickle_.items(arguments);
    const bool is_member = given.size() == 2 && pickle_.kind(given[1]) == PickleKind::kText &&
                           (pickle_.is_global(given[0], PickleGlobal::kDcpMemoryFormat) ||
                            pickle_.is_global(given[0], PickleGlobal::kDeepspeedZeroStage));
    if (!is_member) return "getattr of something else than a known enumeration's member";
  }
  return push_object(callable, arguments);
}

const char* PickleMachine::push_object(NodeId callable, NodeId arguments) {
  return push_new({.kind = PickleKind::kObject,
                   .global = node(callable).global,
                   .first = Pickle::kNoNode,
                   .count = arguments});
}

const char* PickleMachine::newobj() {
  NodeId callable = 0;
  NodeId arguments = 0;
  if (const char* wrong = take_call(callable, arguments)) return wrong;
  if (!may_newobj(node(callable).global)) return "NEWOBJ of a name that is not a class here";
  return push_object(callable, arguments);
}

const char* PickleMachine::build() {
  if (!holds(2)) return "BUILD on too short a stack";
  const NodeId state = pop();
  const NodeId object = stack_.back();
  const PickleKind kind = pickle_.kind(object);
  const bool wants_tuple = kind == PickleKind::kObject && has_tuple_state(pickle_.made_by(object));
  if (pickle_.kind(state) != (wants_tuple ? PickleKind::kTuple : PickleKind::kDict)) {
    return "BUILD with a state of another kind than its class has";
  }
  if (kind == PickleKind::kDict) return nullptr;
  if (kind != PickleKind::kObject || !may_newobj(pickle_.made_by(object))) {
    return "BUILD of what has no state";
  }
  if (node(object).first != Pickle::kNoNode) return "a second BUILD of one object";
  node(object).first = state;
  return nullptr;
}

const char* PickleMachine::persistent() {
  if (!holds(1)) return "BINPERSID on an empty stack";
  const NodeId id = pop();
  return push_new(Node{.kind = PickleKind::kPersistent, .first = id});
}

}  // namespace evalcar::checkpoint
