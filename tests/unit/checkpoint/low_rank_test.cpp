#include "store/checkpoint/low_rank.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "store/checkpoint/convert.h"
#include "store/checkpoint/numeric.h"
#include "tests/unit/checkpoint/support.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (float& value : values) value = draw(engine);
  return values;
}

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  return static_cast<std::size_t>(checked_elements(shape).value());
}

/// A weight, its update, and the three files that hold them.
struct Case {
  std::vector<std::int64_t> w_shape;
  std::vector<std::int64_t> a_shape;
  std::vector<std::int64_t> b_shape;
  double scale = 0.75;
  bool transposed = false;
  bool round_update = false;
  DType dtype = DType::kFloat32;

  std::vector<float> w = random_values(count_of(w_shape), 1);
  std::vector<float> a = random_values(count_of(a_shape), 2);
  std::vector<float> b = random_values(count_of(b_shape), 3);

  std::string stored_weight() const {
    std::string bytes(w.size() * dtype_size(dtype), '\0');
    convert(DType::kFloat32, std::as_bytes(std::span(w)), dtype,
            std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  Plan plan(const FileSystem& files, const ScratchFolder& scratch) const {
    scratch.write("w", stored_weight());
    scratch.write("a", bytes_of(a));
    scratch.write("b", bytes_of(b));
    Plan plan;
    const auto tensor = [&](const char* name, const std::vector<std::int64_t>& shape, DType type) {
      plan.files.push_back({scratch.at(name), files.info(scratch.at(name)).value()});
      return TensorPlan{name,
                        type,
                        shape,
                        {Piece{plan.files.size() - 1, 0, std::vector<std::int64_t>(shape.size(), 0),
                               shape, contiguous_strides(shape)}},
                        std::nullopt};
    };
    TensorPlan weight = tensor("w", w_shape, dtype);
    LowRankUpdate update{tensor("a", a_shape, DType::kFloat32),
                         tensor("b", b_shape, DType::kFloat32), scale, transposed, round_update};
    REQUIRE(low_rank_mismatch(weight, update).empty());
    weight.update = std::make_shared<const LowRankUpdate>(std::move(update));
    plan.tensors.push_back(std::move(weight));
    return plan;
  }

  /// The same by the definition, element by element.
  std::string expected() const {
    std::vector<float> stored(w.size());
    const std::string weight = stored_weight();
    convert(dtype, std::as_bytes(std::span(weight)), DType::kFloat32,
            std::as_writable_bytes(std::span(stored)));
    const std::size_t r = static_cast<std::size_t>(a_shape[0]);
    const std::size_t inputs = a.size() / r;
    const std::size_t outputs = b.size() / r;
    std::string bytes(w.size() * dtype_size(dtype), '\0');
    std::vector<float> update(w.size());
    for (std::size_t out = 0; out < outputs; ++out) {
      for (std::size_t in = 0; in < inputs; ++in) {
        float sum = 0;
        for (std::size_t k = 0; k < r; ++k) {
          sum = std::fma(b[out * r + k], a[k * inputs + in], sum);
        }
        volatile const float scaled = sum * static_cast<float>(scale);  // never fused with the sum
        update[transposed ? in * outputs + out : out * inputs + in] = scaled;
      }
    }
    if (round_update) {
      convert(DType::kFloat32, std::as_bytes(std::span(update)), dtype,
              std::as_writable_bytes(std::span(bytes)));
      convert(dtype, std::as_bytes(std::span(bytes)), DType::kFloat32,
              std::as_writable_bytes(std::span(update)));
    }
    for (std::size_t i = 0; i < stored.size(); ++i) stored[i] += update[i];
    convert(DType::kFloat32, std::as_bytes(std::span(stored)), dtype,
            std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
};

Case of(std::vector<std::int64_t> w, std::vector<std::int64_t> a, std::vector<std::int64_t> b) {
  return {.w_shape = std::move(w), .a_shape = std::move(a), .b_shape = std::move(b)};
}

void check(const Case& one) {
  RealFileSystem files;
  const ScratchFolder scratch;
  const Plan plan = one.plan(files, scratch);
  const auto reader = PlanReader::open(files, plan);
  REQUIRE(reader.has_value());
  const std::string expected = one.expected();
  CHECK((read_tensor(*reader, plan, 0) == expected));

  // Any cut into boxes gives the same bytes.
  std::string streamed;
  for (const Box& box : row_major_boxes(plan.tensors[0], 1000)) {
    std::string part(box.elements() * dtype_size(one.dtype), '\0');
    REQUIRE(reader->read_box(0, box, std::as_writable_bytes(std::span(part))).has_value());
    streamed += part;
  }
  CHECK((streamed == expected));
}

}  // namespace

TEST_CASE("a weight with a low-rank update is read as W + s·B·A, however it is cut") {
  check(of({150, 201}, {7, 201}, {150, 7}));
  check(of({1, 201}, {7, 201}, {1, 7}));
  check(of({150, 1}, {1, 1}, {150, 1}));
}

TEST_CASE("a weight stored as [in, out] gets the update transposed") {
  Case one = of({201, 150}, {7, 201}, {150, 7});
  one.transposed = true;
  check(one);
}

TEST_CASE("the update of a convolution is a product over its flattened kernel") {
  check(of({24, 6, 3, 5}, {4, 6, 3, 5}, {24, 4, 1, 1}));
  check(of({24, 3, 2, 14, 14}, {4, 3, 2, 14, 14}, {24, 4, 1, 1, 1}));
}

TEST_CASE("the sum is rounded once to the weight's type; an embedding's update before that") {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    Case one = of({90, 130}, {5, 130}, {90, 5});
    one.dtype = dtype;
    check(one);
    one.round_update = true;
    check(one);
  }
  Case once = of({90, 130}, {5, 130}, {90, 5});
  once.dtype = DType::kBFloat16;
  Case twice = once;
  twice.round_update = true;
  CHECK((once.expected() != twice.expected()));
}

TEST_CASE("a float64 weight is computed in float64") {
  RealFileSystem files;
  const ScratchFolder scratch;
  Case one = of({3, 4}, {2, 4}, {3, 2});
  one.dtype = DType::kFloat64;
  one.scale = 1.0 / 3.0;
  const Plan plan = one.plan(files, scratch);
  const auto reader = PlanReader::open(files, plan);
  REQUIRE(reader.has_value());
  const std::string bytes = read_tensor(*reader, plan, 0);
  std::vector<double> read(12);
  REQUIRE(bytes.size() == 96);
  std::memcpy(read.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 2; ++k) {
        sum = std::fma(double{one.b[i * 2 + k]}, double{one.a[k * 4 + j]}, sum);
      }
      volatile const double scaled = sum * one.scale;
      CHECK(read[i * 4 + j] == double{one.w[i * 4 + j]} + scaled);
    }
  }
}

TEST_CASE("an update that does not fit its weight is told in words") {
  const auto tensor = [](std::vector<std::int64_t> shape, DType dtype = DType::kFloat32) {
    return TensorPlan{"t", dtype, std::move(shape), {}, std::nullopt};
  };
  const auto mismatch = [&](std::vector<std::int64_t> w, std::vector<std::int64_t> a,
                            std::vector<std::int64_t> b, bool transposed = false,
                            double scale = 1) {
    return low_rank_mismatch(tensor(std::move(w)), {tensor(std::move(a)), tensor(std::move(b)),
                                                    scale, transposed, false});
  };
  CHECK(mismatch({6, 4}, {2, 4}, {6, 2}).empty());
  CHECK(mismatch({4, 6}, {2, 4}, {6, 2}, true).empty());
  CHECK(mismatch({6, 4, 3, 3}, {2, 4, 3, 3}, {6, 2, 1, 1}).empty());
  CHECK_FALSE(mismatch({6, 4}, {2, 4}, {6, 3}).empty());                    // two ranks
  CHECK_FALSE(mismatch({6, 4}, {2, 5}, {6, 2}).empty());                    // other inputs
  CHECK_FALSE(mismatch({6, 4}, {2, 4}, {7, 2}).empty());                    // other outputs
  CHECK_FALSE(mismatch({6, 4}, {0, 4}, {6, 0}).empty());                    // no rank
  CHECK_FALSE(mismatch({6}, {2}, {6, 2}).empty());                          // no matrix
  CHECK_FALSE(mismatch({6, 4, 3}, {2, 4, 3}, {6, 2, 2}).empty());           // B is no 1×1 kernel
  CHECK_FALSE(mismatch({6, 2, 3, 3}, {2, 4, 3, 3}, {6, 2, 1, 1}).empty());  // groups
  CHECK_FALSE(mismatch({6, 4}, {2, 4}, {6, 2}, true).empty());              // not transposed
  CHECK_FALSE(mismatch({6, 4}, {2, 4}, {6, 2}, false, 1e300).empty());
  CHECK_FALSE(mismatch({6, 4}, {2, 4}, {6, 2}, false, std::nan("")).empty());
  const LowRankUpdate good{tensor({2, 4}), tensor({6, 2}), 1, false, false};
  CHECK_FALSE(low_rank_mismatch(tensor({6, 4}, DType::kInt8), good).empty());
}
