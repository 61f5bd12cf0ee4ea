// From the text of a pattern to the graph of states that name_pattern.cpp follows.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/name_pattern.h"

namespace evalcar::checkpoint {

/// Of an escaped letter: \d and its like. Python's classes for ASCII.
std::optional<std::bitset<256>> class_of(char letter);

/// A recursive descent over alternatives, sequences, repeats and atoms. Each part is a range of
/// states [first, …) and the places of its loose ends.
class PatternCompiler {
 public:
  explicit PatternCompiler(std::string_view pattern) : pattern_(pattern) {}

  /// Once. Errors as NamePattern::compile.
  Result<NamePattern> compile();

 private:
  using Step = NamePattern::Step;
  using State = NamePattern::State;
  struct Part {
    std::uint32_t first = 0;
    std::vector<std::uint32_t> ends;  // 2 · state, + 1 for `other`
  };
  struct Repeat {
    std::uint32_t least = 1;
    std::optional<std::uint32_t> most = 1;  // absent: any number
  };

  Error refuse(const std::string& what) const;
  Result<std::uint32_t> add(State state);
  Result<Part> single(State state);
  void connect(const Part& part, std::uint32_t to);
  bool at_end() const { return place_ >= pattern_.size(); }
  char peek() const { return pattern_[place_]; }
  bool take(std::string_view text);
  Result<Part> alternatives(int depth);
  Result<Part> sequence(int depth);
  /// Matches the empty text.
  Result<Part> nothing();
  Result<Part> repeated(int depth);
  Result<std::optional<Repeat>> repetition();
  /// {m}, {m,}, {,n}, {m,n}
  Result<std::optional<Repeat>> counted();
  Result<Part> atom(int depth);
  Result<Part> group(int depth);
  /// A backslash and what follows.
  Result<std::bitset<256>> escaped();
  Result<Part> char_class();
  Result<std::bitset<256>> class_member();

  std::string_view pattern_;
  std::size_t place_ = 0;
  NamePattern compiled_;
};

}  // namespace evalcar::checkpoint
