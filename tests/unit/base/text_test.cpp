#include "store/base/text.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar;

TEST_CASE("text in any language stays as it is") {
  for (const std::string text : {"", "plain ~", "größer ± ↑", "模型", "😀", "\xc2\xa0", "a\\b"}) {
    CHECK(printable(text) == text);
  }
}

TEST_CASE("what a terminal would obey, and what is no UTF-8, is escaped byte by byte") {
  CHECK(printable("a\x1b[31mb\n\r\t\x7f") == "a\\x1b[31mb\\n\\r\\t\\x7f");
  CHECK(printable(std::string(1, '\0')) == "\\x00");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");  // CSI, a C1 control
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");  // overlong
  CHECK(printable("\xe0\x80\x80") == "\\xe0\\x80\\x80");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("x\xe6\xa8") == "x\\xe6\\xa8");  // cut
  const std::string once = printable("\x1b\n\xff");
  CHECK(printable(once) == once);
}

TEST_CASE("an error's message is one printable line, unless lines are added on purpose") {
  const Error error = make_error(ErrorCode::kIo, "a\nb\x1b");
  CHECK(error.message == "a\\nb\\x1b");
  CHECK(with_context(error, "c\nd").message == "c\\nd: a\\nb\\x1b");
  CHECK(errno_error("open", "/x\ny", 5).message.starts_with("open: /x\\ny: "));
  CHECK(with_lines(error, "  1\x1b\n\n2").message == "a\\nb\\x1b\n  1\\x1b\n\n2");
}
