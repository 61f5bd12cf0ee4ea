#include "store/checkpoint/pickle_machine.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "store/checkpoint/numeric.h"
#include "store/checkpoint/pickle_globals.h"

namespace evalcar::checkpoint {
namespace {

// pickletools' names. Opcodes that are not here are refused.
enum Opcode : std::uint8_t {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',
  kMark = '(',
  kGlobalName = 'c',
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kBinFloat = 'G',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kNone = 'N',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kAppend = 'a',
  kAppends = 'e',
  kSetItem = 's',
  kSetItems = 'u',
  kReduce = 'R',
  kNewObj = 0x81,
  kBuild = 'b',
  kBinPersId = 'Q',
};

/// Far more than real files need: they fill containers in batches of a thousand.
constexpr std::size_t kMaxStack = std::size_t{1} << 20U;

std::size_t max_memory_bytes(std::size_t file_bytes) {
  return (std::size_t{24} << 20U) + 3 * file_bytes;
}

bool is_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    std::size_t extra = 0;
    std::uint32_t code = 0;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
      extra = 1;
      code = lead & 0x1fU;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      extra = 2;
      code = lead & 0x0fU;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      extra = 3;
      code = lead & 0x07U;
    } else {
      return false;
    }
    if (text.size() - i <= extra) return false;
    for (std::size_t k = 1; k <= extra; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0U) != 0x80) return false;
      code = code << 6U | (next & 0x3fU);
    }
    const bool too_short = (extra == 2 && code < 0x800) || (extra == 3 && code < 0x10000);
    if (too_short || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff) return false;
    i += extra + 1;
  }
  return true;
}

}  // namespace

PickleMachine::PickleMachine(std::string bytes, std::string_view where, PickleNames names)
    : names_(names), max_memory_bytes_(max_memory_bytes(bytes.size())), where_(where) {
  pickle_.bytes_ = std::make_unique<const std::string>(std::move(bytes));
  bytes_ = *pickle_.bytes_;
  for (const PickleKind kind : {PickleKind::kNone, PickleKind::kBool, PickleKind::kBool,
                                PickleKind::kReal, PickleKind::kTuple}) {
    add({.kind = kind});
  }
  node(kTrueNode).first = 1;
}

Result<Pickle> PickleMachine::run() {
  while (!stopped_) {
    const std::size_t at = position_;
    if (const char* wrong = step(); wrong != nullptr) return failure(at, wrong);
    if (stack_.size() > kMaxStack || marks_.size() > kMaxStack ||
        memory_bytes() > max_memory_bytes_) {
      return failure(at, "too many objects");
    }
  }
  if (position_ != bytes_.size()) return failure(position_, "bytes behind the end of the pickle");
  return std::move(pickle_);
}

Error PickleMachine::failure(std::size_t at, std::string_view wrong) const {
  return make_error(ErrorCode::kCorruption, std::string(where_) +
                                                ": pickle: " + std::string(wrong) + detail_ +
                                                ", at byte " + std::to_string(at));
}

std::optional<std::uint64_t> PickleMachine::take(std::size_t size) {
  if (bytes_.size() - position_ < size) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;) {
    value = value << 8U | static_cast<unsigned char>(bytes_[position_ + i]);
  }
  position_ += size;
  return value;
}

std::optional<std::vector<Pickle::NodeId>> PickleMachine::pop_to_mark() {
  if (marks_.empty()) return std::nullopt;
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<NodeId> taken(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return taken;
}

const char* PickleMachine::step() {
  const auto code = take(1);
  if (!code) return "ends without STOP";
  if (!seen_proto_ && *code != kProto)
    return "does not begin with PROTO (protocols 0 and 1 are refused)";
  switch (*code) {
    case kProto:
      return proto();
    case kFrame:
      return take(8) ? nullptr : "ends in FRAME";
    case kStop:
      return stop();
    case kMark:
      marks_.push_back(stack_.size());
      return nullptr;
    case kGlobalName:
      return global_lines();
    case kStackGlobal:
      return stack_global();
    case kMemoize:
      return put(next_memo_);
    case kBinPut:
      return put(take(1));
    case kLongBinPut:
      return put(take(4));
    case kBinGet:
      return get(take(1));
    case kLongBinGet:
      return get(take(4));
    case kBinUnicode:
      return unicode(take(4));
    case kShortBinUnicode:
      return unicode(take(1));
    case kBinInt:
      return binint();
    case kBinInt1:
      return integer(take(1));
    case kBinInt2:
      return integer(take(2));
    case kLong1:
      return long1();
    case kBinFloat:
      return take(8) ? push(kRealNode) : "ends in BINFLOAT";
    case kNewTrue:
      return push(kTrueNode);
    case kNewFalse:
      return push(kFalseNode);
    case kNone:
      return push(kNoneNode);
    case kEmptyDict:
      return push_new(Node{.kind = PickleKind::kDict});
    case kEmptyList:
      return push_new(Node{.kind = PickleKind::kList});
    case kEmptyTuple:
      return tuple({});
    case kTuple:
      return tuple_to_mark();
    case kTuple1:
      return tuple_of(1);
    case kTuple2:
      return tuple_of(2);
    case kTuple3:
      return tuple_of(3);
    case kAppend:
      return append_one();
    case kAppends:
      return append_to_mark();
    case kSetItem:
      return set_one();
    case kSetItems:
      return set_to_mark();
    case kReduce:
      return reduce();
    case kNewObj:
      return newobj();
    case kBuild:
      return build();
    case kBinPersId:
      return persistent();
    default:
      detail_ = " " + std::to_string(*code);
      return "refused opcode";
  }
}

const char* PickleMachine::proto() {
  const auto version = take(1);
  if (seen_proto_ || !version) return "a second or broken PROTO";
  seen_proto_ = true;
  return *version >= 2 && *version <= 4 ? nullptr : "protocol is not 2, 3 or 4";
}

const char* PickleMachine::stop() {
  if (stack_.size() != 1 || !marks_.empty()) return "STOP needs exactly one object";
  pickle_.root_ = stack_.back();
  stopped_ = true;
  return nullptr;
}

const char* PickleMachine::global_lines() {
  std::string_view lines[2];
  for (std::string_view& line : lines) {
    const std::size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) return "ends in GLOBAL";
    line = bytes_.substr(position_, end - position_);
    position_ = end + 1;
  }
  return push_global(lines[0], lines[1]);
}

const char* PickleMachine::stack_global() {
  if (!holds(2)) return "STACK_GLOBAL on an empty stack";
  const NodeId name = pop();
  const NodeId module = pop();
  if (pickle_.kind(name) != PickleKind::kText || pickle_.kind(module) != PickleKind::kText) {
    return "STACK_GLOBAL needs two texts";
  }
  return push_global(pickle_.text(module), pickle_.text(name));
}

const char* PickleMachine::push_global(std::string_view module, std::string_view name) {
  const auto known = known_global(names_, module, name);
  if (!known) {
    detail_ = " " + quote_name(std::string(module) + "." + std::string(name)) +
              ", which a checkpoint of tensors has no need for (nothing was executed)";
    if (const std::string_view entry = entry_in_hand(); !entry.empty()) {
      detail_ += ", in the entry " + quote_name(entry);
    }
    return "refused global";
  }
  return push_new(
      Node{.kind = PickleKind::kGlobal, .global = known->global, .dtype = known->dtype});
}

/// A dict's entries are pushed as key, value, key, value, … behind a mark (or one pair without it),
/// and a value that is being made is further marks: the stack shows the way into the dicts. In
/// `.metadata` the entries are those of a dict within the outermost. A file may push a million
/// dicts: only the first few are looked into.
std::string_view PickleMachine::entry_in_hand() const {
  std::size_t skip = names_ == PickleNames::kDcpMetadata ? 1 : 0;
  std::size_t next_mark = 0;
  int dicts = 0;
  constexpr int kMostDicts = 8;
  for (std::size_t i = 0; i + 1 < stack_.size() && dicts < kMostDicts; ++i) {
    while (next_mark < marks_.size() && marks_[next_mark] <= i) ++next_mark;
    if (pickle_.kind(stack_[i]) != PickleKind::kDict) continue;
    ++dicts;
    const bool marked = next_mark < marks_.size() && marks_[next_mark] == i + 1;
    const std::size_t behind = next_mark + (marked ? 1 : 0);
    const std::size_t end = behind < marks_.size() ? marks_[behind] : stack_.size();
    std::string_view key;
    for (std::size_t k = i + 1; k < end; k += 2) {
      if (pickle_.kind(stack_[k]) == PickleKind::kText) key = pickle_.text(stack_[k]);
    }
    if (key.empty()) continue;
    if (skip == 0) return key;
    --skip;
    i = end - 1;  // into the value
  }
  return {};
}

const char* PickleMachine::put(std::optional<std::uint64_t> index) {
  if (!index || !holds(1)) return "broken memo store";
  // Indices are given out in turn; a file has fewer than it has bytes.
  if (*index > bytes_.size() || (*index + 1) * sizeof(NodeId) > max_memory_bytes_) {
    return "memo index beyond the file's size";
  }
  if (memo_.size() <= *index) memo_.resize(*index + 1, Pickle::kNoNode);
  if (memo_[*index] == Pickle::kNoNode) ++next_memo_;
  memo_[*index] = stack_.back();
  return nullptr;
}

const char* PickleMachine::get(std::optional<std::uint64_t> index) {
  if (!index || *index >= memo_.size() || memo_[*index] == Pickle::kNoNode) {
    return "memo entry is not there";
  }
  return push(memo_[*index]);
}

const char* PickleMachine::unicode(std::optional<std::uint64_t> size) {
  if (!size || *size > bytes_.size() - position_) return "text longer than the file";
  const std::string_view text = bytes_.substr(position_, *size);
  if (!is_utf8(text)) return "text is not UTF-8";
  const Node fresh{.kind = PickleKind::kText,
                   .first = static_cast<std::uint32_t>(position_),
                   .count = static_cast<std::uint32_t>(*size)};
  position_ += *size;
  return push_new(fresh);
}

const char* PickleMachine::push_integer(std::int64_t value) {
  if (value >= 0 && value < std::int64_t{Pickle::kNoNode & ~Pickle::kSmallInteger}) {
    return push(static_cast<NodeId>(value) | Pickle::kSmallInteger);
  }
  const auto bits = static_cast<std::uint64_t>(value);
  return push_new(Node{.kind = PickleKind::kInteger,
                       .first = static_cast<std::uint32_t>(bits),
                       .count = static_cast<std::uint32_t>(bits >> 32U)});
}

const char* PickleMachine::integer(std::optional<std::uint64_t> value) {
  return value ? push_integer(static_cast<std::int64_t>(*value)) : "ends in an integer";
}

const char* PickleMachine::binint() {
  const auto value = take(4);
  if (!value) return "ends in BININT";
  return push_integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(*value)));
}

const char* PickleMachine::long1() {
  const auto size = take(1);
  if (!size || *size > 8) return "an integer of more than 64 bits";
  const auto raw = take(*size);
  if (!raw) return "ends in LONG1";
  std::uint64_t value = *raw;
  if (*size > 0 && *size < 8 && (value >> (8 * *size - 1) & 1U) != 0) {
    value |= ~std::uint64_t{0} << (8 * *size);
  }
  return push_integer(static_cast<std::int64_t>(value));
}

}  // namespace evalcar::checkpoint
