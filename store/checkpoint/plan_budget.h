// How large a plan the files that it describes may make.
//
// A pickle names an object again for two bytes, and what is planned for each naming takes hundreds:
// a file of a few MB could ask for more memory than there is. So what a plan takes is counted, and
// limited by the bytes that say so. Real files stay far below it.
#pragma once

#include <cstdint>

#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Not thread-safe.
class PlanBudget {
 public:
  /// What an error says of a tensor that is_spent().
  static constexpr const char* kTooMuch =
      "is one too many: a description of that size does not name so many tensors, dimensions and "
      "parts";

  /// So many more bytes of description (a pickle) were read.
  void allow_description(std::uint64_t bytes);
  /// So many more bytes of a file with tensors were found: a real one has many for each that it
  /// describes, however short its names are, and however many ranks a parameter is cut among.
  void allow_parts(std::uint64_t file_bytes);

  /// Counts what one of them takes; of a tensor without its pieces.
  void take(const TensorPlan& tensor);
  void take(const Piece& piece);
  /// Counts a tensor with its pieces.
  void take_whole(const TensorPlan& tensor);
  /// Counts a tensor of a file that is looked at before it is planned.
  void take_found(std::size_t dimensions);
  bool is_spent() const { return taken_ > allowed_; }
  /// The files are larger than counts: what is_spent() may be the plan of a real model.
  bool is_capped() const;
  /// The next files are those of another checkpoint, which may be as large.
  void begin_checkpoint() { parts_ = 0; }

 private:
  std::uint64_t allowed_ = std::uint64_t{24} << 20U;
  std::uint64_t parts_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace evalcar::checkpoint
