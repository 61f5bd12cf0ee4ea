#include "store/checkpoint/pickle.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/unit/checkpoint/torch_files.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct BadPickle {
  const char* slug;
  const char* why;  // what its message says: not refused for something else
  std::string bytes;
};

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

/// GLOBAL module name, one text argument, REDUCE.
std::string call_of(const char* module, const char* name) {
  return p_whole(p_call(p_global(module, name), p_tuple({p_text("touch /tmp/evil")})));
}

/// The corpus "Pickle" of the fault list, as far as the machine itself refuses it.
std::vector<BadPickle> bad_pickles() {
  const std::string list_key = "}](" + p_int(1) + "es";
  return {
      {"p-empty", "ends without STOP", ""},
      {"p-os-system", "refused global", call_of("os", "system")},
      {"p-many-dicts", "refused global", p_whole(repeat("}", 900'000) + p_global("os", "system"))},
      {"p-posix", "refused global", call_of("posix", "system")},
      {"p-nt", "refused global", call_of("nt", "system")},
      {"p-eval", "refused global", call_of("builtins", "eval")},
      {"p-exec", "refused global", call_of("builtins", "exec")},
      {"p-getattr", "refused global", call_of("builtins", "getattr")},
      {"p-builtin2", "refused global", call_of("__builtin__", "eval")},
      {"p-runpy", "refused global", call_of("runpy", "_run_code")},
      {"p-pip", "refused global", call_of("pip", "main")},
      {"p-uuid", "refused global", call_of("uuid", "_get_command_stdout")},
      {"p-imaplib", "refused global", call_of("imaplib", "IMAP4_stream")},
      {"p-torch-load", "refused global", call_of("torch", "load")},
      {"p-torch-hub", "refused global", call_of("torch.hub", "load")},
      {"p-storage-from-bytes", "refused global", call_of("torch.storage", "_load_from_bytes")},
      {"p-codecs", "refused global", call_of("_codecs", "encode")},
      {"p-stack-global-memo", "refused global",
       std::string("\x80\x04\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93.", 22)},
      {"p-dotted-name", "refused global",
       std::string("\x80\x04") + p_text("torch") + p_text("Size.__init__.__globals__") + "\x93."},
      {"p-stack-global-ints", "STACK_GLOBAL needs two texts",
       "\x80\x04" + p_int(1) + p_int(2) + "\x93."},
      {"p-inst", "refused opcode 105", p_whole("(ios\nsystem\n")},
      {"p-obj", "refused opcode 111", p_whole("(" + p_global("torch", "Size") + "o")},
      {"p-newobj-ex", "refused opcode 146", p_whole(p_global(kPlacements, "Shard") + ")}\x92")},
      {"p-ext1", "refused opcode 130", p_whole("\x82\x01")},
      {"p-ext2", "refused opcode 131", p_whole(std::string("\x83\x01\x00", 3))},
      {"p-ext4", "refused opcode 132", p_whole(std::string("\x84\x01\x00\x00\x00", 5))},
      {"p-build-non-dict", "BUILD with a state",
       p_whole(p_object(p_global(kPlacements, "Shard"), p_tuple({"}", "}"})))},
      {"p-build-of-int", "BUILD of what has no state", p_whole(p_int(1) + "}b")},
      {"p-build-of-tensor", "BUILD of what has no state", p_whole(TensorText{}.text() + "}b")},
      {"p-build-twice", "a second BUILD",
       p_whole(p_object(p_global(kPlacements, "Shard"), "}") + "}b")},
      {"p-reduce-class", "REDUCE of a name",
       p_whole(p_call(p_global("torch", "FloatStorage"), ")"))},
      {"p-reduce-dtype", "REDUCE of a name", p_whole(p_call(p_global("torch", "float32"), ")"))},
      {"p-newobj-function", "NEWOBJ of a name", p_whole(p_global("torch", "Size") + ")\x81")},
      {"p-reduce-text", "a call of what is not a global", p_whole(p_text("os") + ")R")},
      {"p-reduce-no-tuple", "without an argument tuple",
       p_whole(p_global("torch", "Size") + p_int(1) + "R")},
      {"p-ordered-dict-arguments", "OrderedDict with arguments",
       p_whole(p_call(p_global("collections", "OrderedDict"), p_tuple({"]"})))},
      {"p-payload-then-garbage", "refused global",
       "\x80\x02" + p_global("os", "system") + "\xff\xff\xff"},
      {"p-after-stop", "bytes behind the end", p_whole("N") + p_whole("N")},
      {"p-memo-huge-index", "memo index beyond", p_whole("Nr\xff\xff\xff\xff")},
      {"p-length-lie-4g", "text longer than the file", p_whole("X\xff\xff\xff\xff")},
      {"p-length-lie-8", "refused opcode 141",
       p_whole(std::string("\x8d") + le(std::uint64_t{1} << 63U, 8))},
      {"p-bytearray-8", "refused opcode 150",
       p_whole(std::string("\x96") + le(std::uint64_t{1} << 63U, 8))},
      {"p-stack-underflow-tuple", "tuple on too short a stack", p_whole("N\x87")},
      {"p-stack-underflow-reduce", "a call on too short a stack", p_whole("R")},
      {"p-stack-underflow-append", "APPEND on too short a stack", p_whole("]a")},
      {"p-stack-underflow-setitem", "SETITEM on too short a stack", p_whole("}Ns")},
      {"p-stack-empty-stop", "STOP needs exactly one object", "\x80\x02."},
      {"p-stack-two-at-stop", "STOP needs exactly one object", p_whole("NN")},
      {"p-under-the-mark", "tuple on too short a stack", p_whole("N(\x85")},
      {"p-memo-miss", "memo entry is not there", p_whole("h\x05")},
      {"p-memo-miss-long", "memo entry is not there", p_whole(std::string("j\x05\x00\x00\x00", 5))},
      {"p-mark-missing", "without a mark", p_whole("Nt")},
      {"p-mark-missing-appends", "without a mark", p_whole("]e")},
      {"p-mark-left", "STOP needs exactly one object", p_whole("(N")},
      {"p-opcode-unknown", "refused opcode 254", p_whole("\xfe")},
      {"p-proto-99", "protocol is not", "\x80\x63N."},
      {"p-proto-5", "protocol is not", "\x80\x05N."},
      {"p-proto0-ascii", "does not begin with PROTO", "(dp0\nS'a'\np1\nI1\ns."},
      {"p-no-proto", "does not begin with PROTO", "N."},
      {"p-two-protos", "a second or broken PROTO", p_whole("\x80\x02N")},
      {"p-setitem-nondict", "SETITEM on what is not a dict",
       p_whole("]" + p_int(1) + p_int(2) + "s")},
      {"p-append-nonlist", "APPEND to what is not a list", p_whole("}" + p_int(1) + "a")},
      {"p-append-tuple", "APPEND to what is not a list", p_whole(")" + p_int(1) + "a")},
      {"p-setitems-odd", "an odd number of objects", p_whole("}(" + p_int(1) + "u")},
      {"p-key-list", "a dict key", p_whole("}]Ns")},
      {"p-key-tensor", "a dict key", p_whole("}" + TensorText{}.text() + "Ns")},
      {"p-key-tuple-of-list", "a dict key", p_whole("}" + p_tuple({"]"}) + "Ns")},
      {"p-long4-negative", "refused opcode 139", p_whole("\x8b\xff\xff\xff\xff")},
      {"p-long1-255", "an integer of more than 64 bits",
       p_whole("\x8a\xff" + std::string(255, 'x'))},
      {"p-text-int", "refused opcode 73", p_whole("I1_000\n")},
      {"p-text-float", "refused opcode 70", p_whole("Fnan\n")},
      {"p-text-hex", "refused opcode 73", p_whole("I0x10\n")},
      {"p-bad-utf8", "text is not UTF-8", p_whole(p_text("\xff\xfe"))},
      {"p-surrogate", "text is not UTF-8", p_whole(p_text("\xed\xa0\x80"))},
      {"p-overlong", "text is not UTF-8", p_whole(p_text("\xc0\x80"))},
      {"p-persid-text", "refused opcode 80", p_whole("Pstorage\n")},
      {"p-get-text", "refused opcode 103", p_whole("g0\n")},
  };
}

}  // namespace

TEST_CASE("every bad pickle is corruption that names the file and the byte") {
  for (const BadPickle& bad : bad_pickles()) {
    INFO(bad.slug);
    const auto pickle = Pickle::parse(bad.bytes, "t.pt/data.pkl");

    REQUIRE_FALSE(pickle.has_value());
    CHECK(pickle.error().code == ErrorCode::kCorruption);
    CHECK_THAT(pickle.error().message, ContainsSubstring(bad.why));
    CHECK(pickle.error().message.find("t.pt/data.pkl") != std::string::npos);
    CHECK(pickle.error().message.find("at byte") != std::string::npos);
  }
}

TEST_CASE("names that mean something to Python are data here") {
  // BUILD with __class__ and __dict__, __setstate__ as a key, and a key with a NUL byte.
  const std::string state = p_dict({{"__class__", p_text("os.system")}, {"__dict__", p_dict({})}});
  const auto pickle = Pickle::parse(
      p_whole(p_dict(
          {{"o", p_object(p_global("torch.distributed.tensor.placement_types", "Shard"), state)},
           {"__setstate__", p_int(1)},
           {std::string("a\0b", 3), p_int(2)}})),
      "t");

  REQUIRE(pickle.has_value());
  const auto object = pickle->find(pickle->root(), "o");
  REQUIRE(object.has_value());
  CHECK(pickle->is_object(*object, PickleGlobal::kShard));
  CHECK(pickle->text(*pickle->find(*pickle->state(*object), "__class__")) == "os.system");
  CHECK(pickle->integer(*pickle->find(pickle->root(), "__setstate__")) == 1);
  CHECK(pickle->integer(*pickle->find(pickle->root(), std::string_view("a\0b", 3))) == 2);
}

TEST_CASE("values of every kind are kept as data") {
  const auto pickle =
      Pickle::parse(p_whole(p_tuple({"N", "\x88", p_int(-5), "K\xff", std::string("M\x01\x02"),
                                     "J\xff\xff\xff\xff", p_text("ü"),
                                     "](K\x01K\x02"
                                     "e",
                                     p_dict({{"k", p_int(3)}}), p_global("torch", "bfloat16"),
                                     std::string("\x8a\x00", 2), std::string("\x8a\x01\x80", 3),
                                     std::string("G") + le(0, 8)})),
                    "t");

  REQUIRE(pickle.has_value());
  const auto items = pickle->items(pickle->root());
  REQUIRE(items.size() == 13);
  CHECK(pickle->kind(items[0]) == PickleKind::kNone);
  CHECK(pickle->integer(items[1]) == 1);
  CHECK(pickle->integer(items[2]) == -5);
  CHECK(pickle->integer(items[3]) == 255);
  CHECK(pickle->integer(items[4]) == 513);
  CHECK(pickle->integer(items[5]) == -1);
  CHECK(pickle->text(items[6]) == "ü");
  CHECK(pickle->items(items[7]).size() == 2);
  CHECK(pickle->integer(*pickle->find(items[8], "k")) == 3);
  CHECK_FALSE(pickle->find(items[8], "other").has_value());
  CHECK(pickle->dtype(items[9]) == DType::kBFloat16);
  CHECK(pickle->integer(items[10]) == 0);
  CHECK(pickle->integer(items[11]) == -128);
}

TEST_CASE("protocol 4 with frames and memo gives the same as protocol 2") {
  const std::string bytes = std::string("\x80\x04\x95") + le(9, 8) + "}\x94\x8c\x01k\x94K\x07s.";

  const auto pickle = Pickle::parse(bytes, "t");

  REQUIRE(pickle.has_value());
  CHECK(pickle->integer(*pickle->find(pickle->root(), "k")) == 7);
}

TEST_CASE("a cyclic object is stored without being walked") {
  // a DeviceMesh whose state holds the mesh itself
  const std::string mesh = p_global("torch.distributed.device_mesh", "DeviceMesh") + ")\x81" +
                           "q\x07" + "}" + p_text("_root_mesh") + "h\x07" + "sb";
  const auto pickle = Pickle::parse(p_whole(mesh), "t");

  REQUIRE(pickle.has_value());
  CHECK(pickle->find(*pickle->state(pickle->root()), "_root_mesh") == pickle->root());
}

TEST_CASE("deep nesting, sharing without end and self-reference cost no more than their bytes") {
  CHECK(Pickle::parse(p_whole(repeat("]", 1'000'000) + repeat("a", 999'999)), "t").has_value());
  CHECK(Pickle::parse(p_whole("N" + repeat("q\x01h\x01\x86", 60)), "t").has_value());
  CHECK(Pickle::parse(p_whole("]q\x01h\x01"
                              "a"),
                      "t")
            .has_value());
}

TEST_CASE("more objects than the limit are refused") {
  CHECK_FALSE(Pickle::parse(p_whole("(" + std::string(9'000'000, ']') + "t"), "t").has_value());
}

TEST_CASE("every truncation and every flipped bit of a good pickle ends in an answer") {
  const std::string good =
      p_whole(p_dict({{"w", DTensorText{}.text()}, {"b", TensorText{}.text()}}));
  REQUIRE(Pickle::parse(good, "t").has_value());

  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(Pickle::parse(good.substr(0, size), "t").has_value());
  }
  std::size_t answers = 0;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    answers += Pickle::parse(bytes, "t").has_value() ? 1 : 1;
  }
  CHECK(answers == good.size() * 8);
}
