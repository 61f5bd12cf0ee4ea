#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "store/checkpoint/numeric.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {
namespace {

/// Comparisons for each piece where more than two dimensions are cut. A cube of 32 x 32 x 32 pieces
/// takes 512; a file of many pieces must not take the square of its size in time.
constexpr std::uint64_t kMaxComparisonsPerPiece = 4096;

Error tiling_error(const TensorPlan& tensor, const std::string& why,
                   ErrorCode code = ErrorCode::kCorruption) {
  return make_error(code, "tensor " + quote_name(tensor.name) + " of shape " +
                              shape_text(tensor.shape) + ": " + why);
}

bool in_range(const TensorPlan& tensor, const Piece& piece) {
  if (piece.start.size() != tensor.shape.size() || piece.size.size() != tensor.shape.size()) {
    return false;
  }
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (piece.start[d] < 0 || piece.size[d] < 0 || piece.size[d] > tensor.shape[d] ||
        piece.start[d] > tensor.shape[d] - piece.size[d]) {
      return false;
    }
  }
  return true;
}

bool overlap(const Piece& a, const Piece& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    if (a.start[d] + a.size[d] <= b.start[d] || b.start[d] + b.size[d] <= a.start[d]) return false;
  }
  return true;
}

/// The dimensions in which not all pieces start at the same place, the most places first. In every
/// other dimension any two pieces overlap.
std::vector<std::size_t> cut_dimensions(const std::vector<Piece>& pieces) {
  std::vector<std::pair<std::size_t, std::size_t>> places;  // how many, dimension
  std::vector<std::int64_t> starts(pieces.size());
  for (std::size_t d = 0; d < pieces[0].start.size(); ++d) {
    std::transform(pieces.begin(), pieces.end(), starts.begin(),
                   [d](const Piece& piece) { return piece.start[d]; });
    std::sort(starts.begin(), starts.end());
    const auto end = std::unique(starts.begin(), starts.end());
    if (end - starts.begin() > 1) places.emplace_back(end - starts.begin(), d);
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::size_t> dimensions;
  for (const auto& [count, d] : places) dimensions.push_back(d);
  return dimensions;
}

std::vector<const Piece*> by_start(const std::vector<Piece>& pieces, std::size_t d) {
  std::vector<const Piece*> order;
  order.reserve(pieces.size());
  for (const Piece& piece : pieces) order.push_back(&piece);
  std::stable_sort(order.begin(), order.end(),
                   [d](const Piece* a, const Piece* b) { return a->start[d] < b->start[d]; });
  return order;
}

/// A piece that overlaps another one, where only dimensions a and b are cut: a sweep along a that
/// keeps the pieces under it in the order of b, where only neighbours can meet. O(n log n).
const Piece* overlap_in_plane(const std::vector<Piece>& pieces, std::size_t a, std::size_t b) {
  std::map<std::int64_t, const Piece*> under;  // by start in b
  std::multimap<std::int64_t, std::map<std::int64_t, const Piece*>::iterator> ends;  // by end in a
  for (const Piece* piece : by_start(pieces, a)) {
    while (!ends.empty() && ends.begin()->first <= piece->start[a]) {
      under.erase(ends.begin()->second);
      ends.erase(ends.begin());
    }
    const auto after = under.lower_bound(piece->start[b]);
    if (after != under.end() && after->first < piece->start[b] + piece->size[b]) return piece;
    if (after != under.begin()) {
      const Piece& before = *std::prev(after)->second;
      if (before.start[b] + before.size[b] > piece->start[b]) return piece;
    }
    ends.emplace(piece->start[a] + piece->size[a],
                 under.emplace_hint(after, piece->start[b], piece));
  }
  return nullptr;
}

struct Search {
  const Piece* found = nullptr;
  bool given_up = false;
};

/// The same for any number of cut dimensions, within kMaxComparisonsPerPiece.
Search overlap_in_space(const std::vector<Piece>& pieces, std::size_t d) {
  const auto order = by_start(pieces, d);
  std::uint64_t left = kMaxComparisonsPerPiece * order.size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      if (order[j]->start[d] >= order[i]->start[d] + order[i]->size[d]) break;
      if (left-- == 0) return {nullptr, true};
      if (overlap(*order[i], *order[j])) return {order[j], false};
    }
  }
  return {};
}

/// Pieces are in range, hold elements, and differ.
Search find_overlap(const std::vector<Piece>& pieces) {
  if (pieces.size() < 2) return {};  // a scalar has one
  const auto cut = cut_dimensions(pieces);
  if (cut.empty()) return {&pieces[1], false};
  if (cut.size() > 2) return overlap_in_space(pieces, cut[0]);
  return {overlap_in_plane(pieces, cut[0], cut.back()), false};
}

}  // namespace

Status check_tiling(TensorPlan& tensor) {
  auto& pieces = tensor.pieces;
  for (const Piece& piece : pieces) {
    if (!in_range(tensor, piece)) {
      return tiling_error(tensor, "a shard of shape " + shape_text(piece.size) + " at " +
                                      shape_text(piece.start) + " lies outside");
    }
  }
  std::erase_if(pieces, [](const Piece& piece) { return checked_elements(piece.size) == 0U; });
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.start, a.size) < std::tie(b.start, b.size);
  });
  pieces.erase(std::unique(pieces.begin(), pieces.end(),
                           [](const Piece& a, const Piece& b) {
                             return a.start == b.start && a.size == b.size;
                           }),
               pieces.end());
  const Search search = find_overlap(pieces);
  if (search.given_up) {
    return tiling_error(tensor,
                        "its " + std::to_string(pieces.size()) +
                            " shards lie too irregularly for a check that none overlaps another",
                        ErrorCode::kUnsupported);
  }
  if (search.found != nullptr) {
    return tiling_error(tensor, "two shards overlap at " + shape_text(search.found->start));
  }
  std::uint64_t covered = 0;
  for (const Piece& piece : pieces) covered += checked_elements(piece.size).value_or(0);
  if (covered != tensor.elements()) {
    return tiling_error(tensor, "the shards hold " + std::to_string(covered) +
                                    " elements, expected " + std::to_string(tensor.elements()));
  }
  return {};
}

}  // namespace evalcar::checkpoint
