// Rows of a query become values: what the questions of a Reader share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/base/result.h"
#include "store/state/sqlite.h"

namespace evalcar::state {

/// For LIMIT. Parameters are bound by their number: the highest one has to be in the text.
inline constexpr std::int64_t kAllRows = -1;

/// What a query asks of its rows.
class Conditions {
 public:
  void add_if(bool restricts, const std::string& condition) {
    if (restricts) text_ += (text_.empty() ? " WHERE " : " AND ") + condition;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Collects `make(row)` of every row of a query.
template <typename T, typename Make>
Result<std::vector<T>> collect(Result<Statement> rows, const Make& make) {
  if (!rows.has_value()) return std::move(rows).error();
  std::vector<T> found;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows->step());
    if (!row) return found;
    Result<T> one = make(*rows);
    if (!one.has_value()) return std::move(one).error();
    found.push_back(std::move(one).value());
  }
}

/// The one row that there is; kNotFound, naming `what`, if there is none.
template <typename T>
Result<T> only(Result<std::vector<T>> found, const std::string& what) {
  if (!found.has_value()) return std::move(found).error();
  if (found->empty()) return make_error(ErrorCode::kNotFound, "no " + what);
  return std::move(found->front());
}

/// Reads the columns of a row one after the other, in the order of the SELECT.
class Columns {
 public:
  explicit Columns(const Statement& row) : row_(row) {}
  Columns& operator>>(std::int64_t& to) { return to = row_.integer(next_++), *this; }
  Columns& operator>>(std::uint64_t& to) {
    to = static_cast<std::uint64_t>(row_.integer(next_++));
    return *this;
  }
  Columns& operator>>(bool& to) { return to = row_.integer(next_++) != 0, *this; }
  Columns& operator>>(double& to) { return to = row_.real(next_++), *this; }
  Columns& operator>>(std::string& to) { return to = row_.text(next_++), *this; }
  Columns& operator>>(std::optional<std::int64_t>& to) {
    return to = row_.optional_integer(next_++), *this;
  }
  Columns& operator>>(std::optional<double>& to) { return to = row_.optional_real(next_++), *this; }

 private:
  const Statement& row_;
  int next_ = 0;
};

/// The text of the only column of the first row; "" without a row.
inline Result<std::string> text_or_empty(Result<Statement> rows) {
  if (!rows.has_value()) return std::move(rows).error();
  EVALCAR_ASSIGN_OR_RETURN(const bool found, rows->step());
  return found ? rows->text(0) : std::string();
}

}  // namespace evalcar::state
