#include "store/checkpoint/plan.h"

#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

std::string counting_bytes(std::size_t elements) {
  std::vector<std::int32_t> values(elements);
  std::iota(values.begin(), values.end(), 0);
  return bytes_of(values);
}

/// A plan of one int32 tensor in one file.
Plan one_tensor_plan(const FileSystem& files, const std::string& path,
                     std::vector<std::int64_t> shape, std::vector<Piece> pieces) {
  Plan plan;
  plan.files.push_back({path, files.info(path).value()});
  plan.tensors.push_back({"t", DType::kInt32, std::move(shape), std::move(pieces), std::nullopt});
  return plan;
}

std::vector<std::int32_t> numbers(const std::string& bytes) {
  std::vector<std::int32_t> values(bytes.size() / 4);
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST_CASE("pieces cut along the second dimension are woven together") {
  RealFileSystem files;
  const ScratchFolder scratch;
  scratch.write("f", counting_bytes(6));
  // left half [[0,1],[2,3]], right column [[4],[5]]
  const Plan plan =
      one_tensor_plan(files, scratch.at("f"), {2, 3},
                      {Piece{0, 0, {0, 0}, {2, 2}, {2, 1}}, Piece{0, 16, {0, 2}, {2, 1}, {1, 1}}});

  const auto reader = PlanReader::open(files, plan);

  REQUIRE(reader.has_value());
  CHECK(numbers(read_tensor(*reader, plan, 0)) == std::vector<std::int32_t>{0, 1, 4, 2, 3, 5});
}

TEST_CASE("a transposed tensor is read by its strides") {
  RealFileSystem files;
  const ScratchFolder scratch;
  scratch.write("f", counting_bytes(6));
  const Plan plan =
      one_tensor_plan(files, scratch.at("f"), {3, 2}, {Piece{0, 0, {0, 0}, {3, 2}, {1, 3}}});

  const auto reader = PlanReader::open(files, plan);

  REQUIRE(reader.has_value());
  CHECK(numbers(read_tensor(*reader, plan, 0)) == std::vector<std::int32_t>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("large transposed and padded regions equal a plain index computation") {
  RealFileSystem files;
  const ScratchFolder scratch;
  constexpr std::int64_t kA = 70;
  constexpr std::int64_t kB = 90;
  constexpr std::int64_t kC = 80;
  constexpr std::int64_t kPad = 3;  // elements behind each innermost row
  scratch.write("f", counting_bytes(kA * (kB * (kC + kPad))));
  // In the file the order is (b, c, a): strides chosen freely, the rows padded.
  const std::vector<std::int64_t> strides = {1, (kC)*kA, kA};
  const Plan plan = one_tensor_plan(files, scratch.at("f"), {kA, kB, kC},
                                    {Piece{0, 0, {0, 0, 0}, {kA, kB, kC}, strides}});
  const auto reader = PlanReader::open(files, plan);
  REQUIRE(reader.has_value());

  const auto whole = numbers(read_tensor(*reader, plan, 0));
  bool equal = true;
  std::size_t at = 0;
  for (std::int64_t a = 0; a < kA; ++a) {
    for (std::int64_t b = 0; b < kB; ++b) {
      for (std::int64_t c = 0; c < kC; ++c, ++at) {
        equal = equal && whole[at] == a * strides[0] + b * strides[1] + c * strides[2];
      }
    }
  }
  CHECK(equal);

  // Boxes of any size, read in turn, give the same bytes.
  for (const std::uint64_t bytes : {4U, 100U, 1000U, 100000U, 10000000U}) {
    std::string streamed;
    for (const Box& box : row_major_boxes(plan.tensors[0], bytes)) {
      std::string part(box.elements() * 4, '\0');
      REQUIRE(reader->read_box(0, box, std::as_writable_bytes(std::span<char>(part))).has_value());
      REQUIRE((bytes < 4 || part.size() <= bytes));
      streamed += part;
      if (bytes == 4 && streamed.size() > 40000) break;
    }
    CHECK(numbers(streamed) ==
          std::vector<std::int32_t>(whole.begin(),
                                    whole.begin() + static_cast<long>(streamed.size() / 4)));
    if (bytes > 4) CHECK(streamed.size() == whole.size() * 4);
  }
}

TEST_CASE("boxes of scalars and empty tensors are one and none") {
  CHECK(row_major_boxes({"s", DType::kInt64, {}, {}, std::nullopt}, 1).size() == 1);
  CHECK(row_major_boxes({"e", DType::kInt64, {3, 0}, {}, std::nullopt}, 100).empty());
}

TEST_CASE("a file that was rewritten after planning is refused at opening and after reading") {
  RealFileSystem files;
  const ScratchFolder scratch;
  scratch.write("f", counting_bytes(2));
  const Plan plan = one_tensor_plan(files, scratch.at("f"), {2}, {Piece{0, 0, {0}, {2}, {1}}});
  const auto reader = PlanReader::open(files, plan);
  REQUIRE(reader.has_value());
  CHECK(reader->verify_unchanged().has_value());

  std::filesystem::create_hard_link(scratch.at("f"), scratch.at("lease"));
  bool only_ctime = false;
  CHECK(reader->verify_unchanged(&only_ctime).has_value());
  CHECK(only_ctime);
  scratch.write("f", counting_bytes(3));

  const Status after = reader->verify_unchanged();
  REQUIRE_FALSE(after.has_value());
  CHECK(after.error().code == ErrorCode::kUnavailable);
  CHECK(PlanReader::open(files, plan).error().code == ErrorCode::kUnavailable);
}

TEST_CASE("a file that was only unlinked while open is still good to read") {
  RealFileSystem files;
  const ScratchFolder scratch;
  scratch.write("f", counting_bytes(2));
  const Plan plan = one_tensor_plan(files, scratch.at("f"), {2}, {Piece{0, 0, {0}, {2}, {1}}});
  const auto reader = PlanReader::open(files, plan);
  REQUIRE(reader.has_value());

  std::filesystem::remove(scratch.at("f"));

  CHECK(numbers(read_tensor(*reader, plan, 0)) == std::vector<std::int32_t>{0, 1});
  CHECK(reader->verify_unchanged().has_value());
}

TEST_CASE("the digest of a set of weights is over its sorted lines") {
  // printf 'a\tint32\t2,3\tx\nb\tbfloat16\t\ty\n' | sha256sum
  const std::string expected = sha256_hex("a\tint32\t2,3\tx\nb\tbfloat16\t\ty\n");

  CHECK(weights_sha256({{"b", DType::kBFloat16, {}, "y"}, {"a", DType::kInt32, {2, 3}, "x"}}) ==
        expected);
  CHECK(tensor_sha256({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
