#include <catch2/catch_test_macros.hpp>
#include <random>

#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {
namespace {

TEST_CASE("tiling drops replicas and refuses gaps, overlaps and shards outside") {
  const auto tile = [](std::vector<Piece> pieces) {
    TensorPlan tensor{"t", DType::kInt32, {4, 2}, std::move(pieces), std::nullopt};
    const Status status = check_tiling(tensor);
    return std::pair(status, tensor.pieces.size());
  };
  const Piece top{0, 0, {0, 0}, {2, 2}, {2, 1}};
  const Piece bottom{1, 0, {2, 0}, {2, 2}, {2, 1}};
  const Piece replica{2, 0, {0, 0}, {2, 2}, {2, 1}};
  const Piece empty{3, 0, {4, 0}, {0, 2}, {2, 1}};
  const Piece middle{0, 0, {1, 0}, {2, 2}, {2, 1}};
  const Piece outside{0, 0, {3, 0}, {2, 2}, {2, 1}};

  CHECK(tile({bottom, top}).first.has_value());
  CHECK(tile({bottom, top, replica, empty}).second == 2);
  CHECK_FALSE(tile({top}).first.has_value());
  CHECK_FALSE(tile({top, middle}).first.has_value());
  CHECK_FALSE(tile({top, middle, bottom}).first.has_value());
  CHECK_FALSE(tile({top, outside}).first.has_value());
}

TEST_CASE("a tensor in very many pieces is checked without comparing each with each") {
  constexpr std::int64_t kColumns = 200'000;
  TensorPlan tensor{"t", DType::kInt32, {2, kColumns}, {}, std::nullopt};
  for (std::int64_t i = 0; i < kColumns; ++i) tensor.pieces.push_back({0, 0, {0, i}, {2, 1}, {}});
  CHECK(check_tiling(tensor).has_value());

  tensor.pieces[70'000].size = {1, 1};
  tensor.pieces.push_back({0, 0, {1, 70'000}, {1, 2}, {}});  // one column too wide
  const Status tiled = check_tiling(tensor);
  REQUIRE_FALSE(tiled.has_value());
  CHECK(tiled.error().message.find("overlap") != std::string::npos);
}

TEST_CASE("pieces that overlap along the whole sweep take no square of their number") {
  constexpr std::int64_t kPieces = 100'000;
  TensorPlan stairs{"t", DType::kInt32, {kPieces, kPieces}, {}, std::nullopt};
  for (std::int64_t i = 0; i < kPieces; ++i) {
    stairs.pieces.push_back({0, 0, {i, i}, {kPieces - i, 1}, {}});
  }
  Status tiled = check_tiling(stairs);
  REQUIRE_FALSE(tiled.has_value());
  CHECK(tiled.error().message.find("the shards hold") != std::string::npos);

  constexpr std::int64_t kLines = 20'000;
  TensorPlan lines{"t", DType::kInt32, {kLines, kLines, kLines}, {}, std::nullopt};
  for (std::int64_t i = 0; i < kLines; ++i) {
    lines.pieces.push_back({0, 0, {i, i, i}, {kLines - i, 1, 1}, {}});
  }
  tiled = check_tiling(lines);
  REQUIRE_FALSE(tiled.has_value());
  CHECK(tiled.error().code == ErrorCode::kUnsupported);
  CHECK(tiled.error().message.find("20000 shards lie too irregularly") != std::string::npos);
}

bool any_two_meet(const std::vector<Piece>& pieces) {
  for (const Piece& a : pieces) {
    for (const Piece& b : pieces) {
      if (a.start == b.start && a.size == b.size) continue;  // a replica
      bool meet = true;
      for (std::size_t d = 0; d < a.start.size(); ++d) {
        meet = meet && a.start[d] < b.start[d] + b.size[d] && b.start[d] < a.start[d] + a.size[d];
      }
      if (meet) return true;
    }
  }
  return false;
}

/// A box cut in two again and again, at random places along random dimensions.
std::vector<Piece> random_tiling(std::mt19937& random, const std::vector<std::int64_t>& shape) {
  std::vector<Piece> pieces{{0, 0, std::vector<std::int64_t>(shape.size(), 0), shape, {}}};
  for (int cuts = 0; cuts < 12; ++cuts) {
    Piece& whole = pieces[random() % pieces.size()];
    const std::size_t d = random() % shape.size();
    if (whole.size[d] < 2) continue;
    const auto at =
        static_cast<std::int64_t>(1 + random() % static_cast<std::uint64_t>(whole.size[d] - 1));
    Piece rest = whole;
    whole.size[d] = at;
    rest.start[d] += at;
    rest.size[d] -= at;
    pieces.push_back(std::move(rest));
  }
  return pieces;
}

TEST_CASE("random tilings are accepted, and with one piece moved or grown refused") {
  std::mt19937 random(20);
  int refused_for_overlap = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::vector<std::int64_t> shape;
    for (std::size_t d = 0; d <= random() % 4; ++d) {
      shape.push_back(static_cast<std::int64_t>(1 + random() % 9));
    }
    TensorPlan tensor{"t", DType::kInt32, shape, random_tiling(random, shape), std::nullopt};
    std::shuffle(tensor.pieces.begin(), tensor.pieces.end(), random);
    TensorPlan broken = tensor;
    REQUIRE(check_tiling(tensor).has_value());

    Piece& piece = broken.pieces[random() % broken.pieces.size()];
    const std::size_t d = random() % shape.size();
    const bool moved = random() % 2 == 0;
    if (piece.start[d] + piece.size[d] == shape[d]) continue;
    ++(moved ? piece.start[d] : piece.size[d]);
    const bool meets = any_two_meet(broken.pieces);
    const Status tiled = check_tiling(broken);
    REQUIRE_FALSE(tiled.has_value());
    CHECK((tiled.error().message.find("two shards overlap") != std::string::npos) == meets);
    refused_for_overlap += meets ? 1 : 0;
  }
  CHECK(refused_for_overlap > 500);
}

}  // namespace
}  // namespace evalcar::checkpoint
