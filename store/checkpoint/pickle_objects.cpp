// The steps of PickleMachine that make tuples, lists, dicts and objects. Nothing is called: REDUCE,
// NEWOBJ and BUILD store their operands.
#include <algorithm>

#include "store/checkpoint/pickle_globals.h"
#include "store/checkpoint/pickle_machine.h"

namespace evalcar::checkpoint {

const char* PickleMachine::tuple(std::span<const NodeId> elements) {
  if (elements.empty() && empty_tuple_ != Pickle::kNoNode) {
    push(empty_tuple_);
    return nullptr;
  }
  const Node fresh{.kind = PickleKind::kTuple,
                   .first = static_cast<std::uint32_t>(pickle_.pool_.size()),
                   .count = static_cast<std::uint32_t>(elements.size())};
  pickle_.pool_.insert(pickle_.pool_.end(), elements.begin(), elements.end());
  const NodeId id = add(fresh);
  if (elements.empty()) empty_tuple_ = id;
  push(id);
  return nullptr;
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

std::vector<Pickle::NodeId>& PickleMachine::growing(NodeId id) {
  if (node(id).first == Pickle::kNoNode) {
    node(id).first = static_cast<std::uint32_t>(pickle_.growing_.size());
    pickle_.growing_.emplace_back();
  }
  return pickle_.growing_[node(id).first];
}

const char* PickleMachine::append(std::span<const NodeId> elements) {
  if (!holds(1) || node(stack_.back()).kind != PickleKind::kList) {
    return "APPEND to what is not a list";
  }
  auto& list = growing(stack_.back());
  list.insert(list.end(), elements.begin(), elements.end());
  return nullptr;
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
  if (!holds(1) || node(stack_.back()).kind != PickleKind::kDict) {
    return "SETITEM on what is not a dict";
  }
  if (pairs.size() % 2 != 0) return "SETITEMS with an odd number of objects";
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (!is_key(pairs[i])) return "a dict key that cannot be one";
  }
  auto& dict = growing(stack_.back());
  dict.insert(dict.end(), pairs.begin(), pairs.end());
  return nullptr;
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
  if (node(callable).kind != PickleKind::kGlobal) return "a call of what is not a global";
  if (node(arguments).kind != PickleKind::kTuple) return "a call without an argument tuple";
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
    const bool is_member = given.size() == 2 && node(given[1]).kind == PickleKind::kText &&
                           (pickle_.is_global(given[0], PickleGlobal::kDcpMemoryFormat) ||
                            pickle_.is_global(given[0], PickleGlobal::kDeepspeedZeroStage));
    if (!is_member) return "getattr of something else than a known enumeration's member";
  }
  return push_new(Node{.kind = PickleKind::kObject, .first = callable, .count = arguments});
}

const char* PickleMachine::newobj() {
  NodeId callable = 0;
  NodeId arguments = 0;
  if (const char* wrong = take_call(callable, arguments)) return wrong;
  if (!may_newobj(node(callable).global)) return "NEWOBJ of a name that is not a class here";
  return push_new(Node{.kind = PickleKind::kObject, .first = callable, .count = arguments});
}

const char* PickleMachine::build() {
  if (!holds(2)) return "BUILD on too short a stack";
  const NodeId state = pop();
  Node& object = node(stack_.back());
  const bool wants_tuple =
      object.kind == PickleKind::kObject && has_tuple_state(node(object.first).global);
  if (node(state).kind != (wants_tuple ? PickleKind::kTuple : PickleKind::kDict)) {
    return "BUILD with a state of another kind than its class has";
  }
  if (object.kind == PickleKind::kDict) return nullptr;
  if (object.kind != PickleKind::kObject || !may_newobj(node(object.first).global)) {
    return "BUILD of what has no state";
  }
  if (object.state != Pickle::kNoNode) return "a second BUILD of one object";
  object.state = state;
  return nullptr;
}

const char* PickleMachine::persistent() {
  if (!holds(1)) return "BINPERSID on an empty stack";
  const NodeId id = pop();
  return push_new(Node{.kind = PickleKind::kPersistent, .first = id});
}

}  // namespace evalcar::checkpoint
