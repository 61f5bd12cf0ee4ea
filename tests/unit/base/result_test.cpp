#include "store/base/result.h"

#include <catch2/catch_test_macros.hpp>
#include <cerrno>

using namespace evalcar;

namespace {
Result<int> half(int n) {
  if (n % 2 != 0) return make_error(ErrorCode::kInvalidArgument, "odd: " + std::to_string(n));
  return n / 2;
}
Result<int> quarter(int n) {
  EVALCAR_ASSIGN_OR_RETURN(const int h, half(n));
  return half(h);
}
}  // namespace

TEST_CASE("an error passes through EVALCAR_ASSIGN_OR_RETURN unchanged") {
  REQUIRE(quarter(8).value() == 2);

  const Result<int> failed = quarter(6);

  REQUIRE_FALSE(failed.has_value());
  CHECK(failed.error().code == ErrorCode::kInvalidArgument);
  CHECK(failed.error().message == "odd: 3");
}

TEST_CASE("only errors of the system and of the moment are worth another try") {
  CHECK(make_error(ErrorCode::kIo, "").retryable);
  CHECK(make_error(ErrorCode::kUnavailable, "").retryable);
  CHECK_FALSE(make_error(ErrorCode::kCorruption, "").retryable);
  CHECK_FALSE(make_error(ErrorCode::kUnsupported, "").retryable);
}

TEST_CASE("a missing file is told apart from a failing disk") {
  CHECK(errno_error("open", "/x", ENOENT).code == ErrorCode::kNotFound);
  CHECK(errno_error("open", "/x", ESTALE).code == ErrorCode::kNotFound);
  CHECK(errno_error("read", "/x", EIO).code == ErrorCode::kIo);
  CHECK(errno_error("read", "/x", EIO).message == "read: /x: Input/output error");
}
