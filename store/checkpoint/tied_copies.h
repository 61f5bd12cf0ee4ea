// Tensors that a model fills by its ties, and that it can fill no longer where a head is its own.
//
// The flag that ties a head ties more in some classes: two biases of BERT's heads, the embeddings
// of BART's encoder and decoder, LUKE's entities. Files hold one of the names. Where the head in
// the files differs from its embedding the flag is given up (merge_side_files.h), and each name
// needs a tensor.
#pragma once

#include <optional>

#include "store/checkpoint/merge.h"

namespace evalcar::checkpoint {

/// Whether two tensors of a plan hold the same bytes; tensors of two shapes or dtypes do not.
Result<bool> are_equal(const FileSystem& files, const Plan& plan, std::size_t one,
                       std::size_t other);

/// The request with those tensors in its plans; absent where nothing is missing, the configuration
/// does not tie, or each head is equal to an embedding.
Result<std::optional<MergeRequest>> with_tied_copies(const FileSystem& files,
                                                     const MergeRequest& request);

}  // namespace evalcar::checkpoint
