#include "store/checkpoint/safetensors.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// "a": [2] float32 at 0…8, "b": [] int64 at 8…16.
const std::string kGood = safetensors_bytes(
    R"({"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}  )",
    std::string(16, 'x'));

Result<SafetensorsFile> read_bytes(const std::string& bytes) {
  return read_safetensors(MemoryFile(bytes), "t.safetensors");
}

struct BadHeader {
  const char* slug;
  const char* why;  // what its message says: not refused for something else
  const char* header;
  std::size_t data_bytes;
};

// The corpus "safetensors" of the fault list: each header is wrong in one way.
const BadHeader kBadHeaders[] = {
    {"s-not-brace", "does not begin with '{'", R"([{"a":1}])", 0},
    {"s-leading-space", "does not begin with '{'",
     R"( {"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4},
    {"s-bad-utf8", "not valid JSON",
     "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"s-not-json", "not valid JSON", R"({"a":{"dtype":"F32",})", 4},
    {"s-dup-key", "appears twice",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8},
    {"s-dup-field", "appears twice",
     R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4},
    {"s-overlap", "overlaps another tensor",
     R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12},
    {"s-hole", "a hole before it",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
     12},
    {"s-trailing", "belong to no tensor",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5},
    {"s-reversed", "are reversed", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4},
    {"s-not-from-0", "a hole before it",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8},
    {"s-shape-overflow", "is too large",
     R"({"a":{"dtype":"F32","shape":[8589934592,8589934592],"data_offsets":[0,4]}})", 4},
    {"s-shape-wraps", "is too large",  // 2^62 elements of 4 bytes wrap to 0
     R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0},
    {"s-shape-zero-hides-overflow", "is too large",
     R"({"a":{"dtype":"F32","shape":[0,9223372036854775807,2],"data_offsets":[0,0]}})", 0},
    {"s-size-mismatch", "expected 8 for shape",
     R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4},
    {"s-dtype-unknown", "unknown dtype",
     R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4},
    {"s-dtype-empty", "unknown dtype", R"({"a":{"dtype":"","shape":[1],"data_offsets":[0,16]}})",
     16},
    {"s-dtype-number", "dtype is not text",
     R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4},
    {"s-subbyte-odd", "even last dimension",
     R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1},
    {"s-number-negative", "expected an integer",
     R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4},
    {"s-number-minus-zero", "expected an integer",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}})", 4},
    {"s-number-real", "expected an integer",
     R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4},
    {"s-number-exponent", "expected an integer",
     R"({"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}})", 4},
    {"s-number-2-64", "expected an integer",
     R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}})", 4},
    {"s-number-text", "expected an integer",
     R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4},
    {"s-offsets-one", "needs two numbers",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4},
    {"s-offsets-three", "needs two numbers",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4},
    {"s-missing-shape", "is missing", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4},
    {"s-unknown-field", "unexpected value",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4},
    {"s-tensor-not-object", "unexpected array", R"({"a":[1]})", 0},
    {"s-metadata-nonstring", "metadata is not text", R"({"__metadata__":{"a":1}})", 0},
    {"s-metadata-nested", "unexpected object", R"({"__metadata__":{"a":{"b":"c"}}})", 0},
    {"s-shape-nested", "nested deeper",
     R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4},
};

}  // namespace

TEST_CASE("a good safetensors header gives its tensors in the order of their bytes") {
  const auto file = read_bytes(kGood);

  REQUIRE(file.has_value());
  REQUIRE(file->tensors.size() == 2);
  CHECK(file->tensors[0].name == "a");
  CHECK(file->tensors[0].dtype == DType::kFloat32);
  CHECK(file->tensors[0].shape == std::vector<std::int64_t>{2});
  CHECK(file->tensors[1].name == "b");
  CHECK(file->tensors[1].shape.empty());
  CHECK(file->tensors[1].begin == 8);
  CHECK(file->data_offset == kGood.size() - 16);
  CHECK(file->metadata.at("format") == "pt");
}

TEST_CASE("every bad safetensors header is corruption that names the file") {
  for (const BadHeader& bad : kBadHeaders) {
    INFO(bad.slug);
    const auto file = read_bytes(safetensors_bytes(bad.header, std::string(bad.data_bytes, 'x')));

    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().code == ErrorCode::kCorruption);
    CHECK_THAT(file.error().message, ContainsSubstring(bad.why));
    CHECK(file.error().message.find("t.safetensors") != std::string::npos);
  }
}

TEST_CASE("a header length beyond 100 MB is refused without reading it") {
  for (const std::uint64_t length : {kMaxSafetensorsHeader + 1, UINT64_MAX}) {
    const auto file = read_bytes(u64_bytes(length) + "{}");

    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().code == ErrorCode::kCorruption);
  }
}

TEST_CASE("every truncation of a safetensors file is told as unfinished") {
  for (std::size_t size = 0; size < kGood.size(); ++size) {
    INFO(size);
    const auto file = read_bytes(kGood.substr(0, size));

    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().code == ErrorCode::kUnavailable);
    CHECK(file.error().retryable);
  }
}

TEST_CASE("no single flipped bit of a header crashes the reader or yields a tensor out of range") {
  for (std::size_t bit = 0; bit < (kGood.size() - 16) * 8; ++bit) {
    std::string bytes = kGood;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const auto file = read_bytes(bytes);
    if (!file.has_value()) continue;
    for (const SafetensorsTensor& tensor : file->tensors) {
      CHECK(tensor.end <= file->data_bytes);
      CHECK(file->data_offset + file->data_bytes == bytes.size());
    }
  }
}

TEST_CASE("metadata a hundred thousand objects deep is refused without recursion") {
  std::string deep = R"({"__metadata__":)";
  for (int i = 0; i < 100'000; ++i) deep += R"({"a":)";

  const auto file = read_bytes(safetensors_bytes(deep, ""));

  REQUIRE_FALSE(file.has_value());
  CHECK(file.error().code == ErrorCode::kCorruption);
}

TEST_CASE("empty tensors without end are refused after the first two hundred thousand") {
  std::string header = "{";
  for (std::size_t i = 0; i <= kMaxSafetensorsTensors; ++i) {
    if (i > 0) header += ',';
    header += '"' + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }

  const auto file = read_bytes(safetensors_bytes(header + "}", ""));

  REQUIRE_FALSE(file.has_value());
  CHECK(file.error().code == ErrorCode::kCorruption);
  CHECK(file.error().message.find("more than 200000 tensors") != std::string::npos);
}

TEST_CASE("a tensor's name is an opaque text") {
  const auto file = read_bytes(safetensors_bytes(
      R"({"../\u0000<script>":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));

  REQUIRE(file.has_value());
  CHECK(file->tensors[0].name == std::string("../\0<script>", 12));
}

TEST_CASE("a raw NUL does not end the JSON text early") {
  const std::string header("{}\0garbage", 10);

  CHECK_FALSE(read_bytes(safetensors_bytes(header, "")).has_value());
}

TEST_CASE("a header that we write is read back as it was") {
  const std::vector<SafetensorsTensor> tensors = {{"z \"quoted\"", DType::kBFloat16, {2, 3}, 0, 12},
                                                  {"empty", DType::kInt64, {0, 7}, 12, 12},
                                                  {"scalar", DType::kBool, {}, 12, 13}};

  const auto bytes = make_safetensors_header(tensors, {{"format", "pt"}});

  REQUIRE(bytes.has_value());
  CHECK(bytes->size() % 8 == 0);
  const auto file = read_bytes(*bytes + std::string(13, 'x'));
  REQUIRE(file.has_value());
  REQUIRE(file->tensors.size() == 3);
  CHECK(file->tensors[0].name == tensors[0].name);
  CHECK(file->tensors[1].shape == tensors[1].shape);
  CHECK(file->tensors[2].dtype == DType::kBool);
  CHECK(file->metadata == std::map<std::string, std::string>{{"format", "pt"}});
}

TEST_CASE("every dtype has a size, and its names lead back to it") {
  for (int i = 0; i <= static_cast<int>(DType::kComplex128); ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(dtype_size(dtype) > 0);
    CHECK(dtype_from_name(dtype_name(dtype)) == dtype);
    if (dtype == DType::kComplex128 || dtype == DType::kComplex32) continue;  // not in the format
    CHECK(dtype_from_safetensors(safetensors_dtype_name(dtype)) == dtype);
  }
}

TEST_CASE("a tensor of half bytes has torch's shape, and the format's when it is written") {
  const auto file = read_bytes(
      safetensors_bytes(R"({"a":{"dtype":"F4","shape":[3,4],"data_offsets":[0,6]}})", "123456"));
  REQUIRE(file.has_value());
  CHECK(file->tensors[0].dtype == DType::kFloat4E2M1FNX2);
  CHECK(file->tensors[0].shape == std::vector<std::int64_t>{3, 2});

  const auto written = make_safetensors_header(file->tensors, {});
  REQUIRE(written.has_value());
  CHECK(written->find(R"("shape":[3,4])") != std::string::npos);
  for (const char* shape : {"[3]", "[]", "[2,1]"}) {
    const auto odd = read_bytes(safetensors_bytes(
        R"({"a":{"dtype":"F4","shape":)" + std::string(shape) + R"(,"data_offsets":[0,1]}})", "1"));
    REQUIRE_FALSE(odd.has_value());
    CHECK(odd.error().message.find("even last dimension") != std::string::npos);
  }
  CHECK(make_safetensors_header({{"s", DType::kFloat4E2M1FNX2, {}, 0, 1}}, {}).error().code ==
        ErrorCode::kUnsupported);
}

TEST_CASE("an index that leads out of its folder is refused") {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", "",
                           "a\\\\b.safetensors", "x\\u0000y"}) {
    INFO(name);
    const std::string text = R"({"weight_map":{"a":")" + std::string(name) + "\"}}";
    const auto map = parse_safetensors_index(text, "index");

    REQUIRE_FALSE(map.has_value());
    CHECK(map.error().code == ErrorCode::kCorruption);
  }
}

TEST_CASE("an index keeps only its map, and refuses what is not one") {
  const auto good = parse_safetensors_index(
      R"({"metadata":{"total_size":4,"x":[1,{"y":2}]},"weight_map":{"a":"m.safetensors"}})", "i");
  REQUIRE(good.has_value());
  CHECK(good->at("a").file == "m.safetensors");

  for (const char* text :
       {"{}", R"({"weight_map":{}})", R"({"weight_map":["a"]})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":{"b":"c"}}})", R"({"weight_map":{"a":"x","a":"y"}})", "[]", "1", "",
        R"({"weight_map":{"a":"x"}} tail)"}) {
    INFO(text);
    CHECK_FALSE(parse_safetensors_index(text, "i").has_value());
  }
}

TEST_CASE("every refusal of a header names the file and the byte of what is wrong") {
  struct Bad {
    std::string header;
    std::size_t byte;  // of the file
    std::string data = {};
  };
  const std::string good = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::vector<Bad> bad = {
      {R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", 8 + 14},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 8 + 28},
      {R"({"a":{"dtype":"U8","shape":[ 1.5 ],"data_offsets":[0,1]}})", 8 + 29},
      {R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 8 + 27},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 8 + 51},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 8 + 51},
      {R"({"a":[]})", 8 + 5},
      {"{" + good + "," + good + "}", 8 + 53},
      {R"({"__metadata__":{"k":1}})", 8 + 21},
      {R"({"a":)", 8 + 5},
      {std::string("{}\0x", 4), 8 + 2},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 8 + 53 + 1, "xx"},  // a hole
      {"{" + good + "}", 8 + 53 + 1, "xx"},                                            // too long
  };
  for (const Bad& each : bad) {
    CAPTURE(each.header);
    const auto file = read_bytes(safetensors_bytes(each.header, each.data));
    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().code == ErrorCode::kCorruption);
    CAPTURE(file.error().message);
    CHECK(file.error().message.find("byte " + std::to_string(each.byte)) != std::string::npos);
  }
}

TEST_CASE("a tensor whose offset passes 2^64 is refused without a wrapped place") {
  const auto file = parse_safetensors_header(
      R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807]}})",
      "f");
  REQUIRE_FALSE(file.has_value());
  CHECK(file.error().message.find("byte 9223372036854775") != std::string::npos);
}

TEST_CASE("an index's refusals name the byte, and its entries theirs") {
  const auto refused = parse_safetensors_index(R"({"weight_map":{"a":"x","b":"../y"}})", "index");
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message.find("at byte 27") != std::string::npos);

  const auto good = parse_safetensors_index(R"({"weight_map":{"a":"x", "b" : "y"}})", "index");
  REQUIRE(good.has_value());
  CHECK(good->at("a").offset == 19);
  CHECK(good->at("b").offset == 30);
}
