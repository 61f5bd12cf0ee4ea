// Numbers, texts and tokens as a few bytes. A number is as long as it needs (seven bits a byte, the
// lowest first); of tokens a run of equal ones, as a picture's placeholders are, is one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/hash.h"

namespace evalcar::service {

class PackedWriter {
 public:
  void number(std::uint64_t value);
  /// Also of a negative one.
  void whole(std::int64_t value);
  void text(std::string_view text);
  /// Without its length.
  void digest(const Sha256Digest& digest);
  void tokens(std::span<const std::int32_t> tokens);

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what PackedWriter wrote, in the same order. Of bytes that nobody wrote so it gives zeros
/// and emptiness from the first contradiction on, and allocates no more than a multiple of them and
/// `most_tokens` in all.
class PackedReader {
 public:
  /// `bytes` must outlive it.
  PackedReader(std::string_view bytes, std::uint64_t most_tokens)
      : bytes_(bytes), most_tokens_(most_tokens) {}

  std::uint64_t number();
  std::int64_t whole();
  /// A number below `end`.
  std::size_t below(std::size_t end);
  /// How many things follow, of which each takes at least one byte.
  std::size_t count();
  std::string text();
  Sha256Digest digest();
  std::vector<std::int32_t> tokens();

  /// All was read, and it was written so.
  bool is_whole() const { return !failed_ && bytes_.empty(); }
  bool failed() const { return failed_; }

 private:
  std::string_view take(std::uint64_t size);
  void fail();

  std::string_view bytes_;
  std::uint64_t most_tokens_;
  bool failed_ = false;
};

}  // namespace evalcar::service
