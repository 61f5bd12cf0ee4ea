#include "evaluator/metrics/python_text.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::metrics;

TEST_CASE("bytes that are not UTF-8 become replacement characters one by one") {
  CHECK(decode_utf8("a\xff"
                    "b") ==
        U"a\uFFFD"
        U"b");
  CHECK(decode_utf8("\xe2\x82") == U"\uFFFD\uFFFD");
  CHECK(decode_utf8("\xc0\x80") == U"\uFFFD\uFFFD");
  CHECK(decode_utf8("\xed\xa0\x80") == U"\uFFFD\uFFFD\uFFFD");
  CHECK(decode_utf8("\xf4\x90\x80\x80").size() == 4);
}

TEST_CASE("valid text survives decoding and encoding") {
  const std::string text = "a\u00e9\u65e5\U0001F642";
  CHECK(encode_utf8(decode_utf8(text)) == text);
}

TEST_CASE("lower-casing knows the final sigma and the dotted capital I") {
  CHECK(lower(U"ΑΣ") == U"ας");
  CHECK(lower(U"ΑΣΑ") == U"ασα");
  CHECK(lower(U"İ") == U"i\u0307");
}

TEST_CASE("capitalising lowers everything behind the first letter") {
  CHECK(capitalize(U"wHAT is THE IBM logo?") == U"What is the ibm logo?");
  CHECK(capitalize(U"ßX") == U"Ssx");
  CHECK(capitalize(U"").empty());
}

TEST_CASE("reasoning is cut out and an unclosed tag is left alone") {
  CHECK(strip_reasoning_tags("<think>a</think> B ") == "B");
  CHECK(strip_reasoning_tags("half of it</think>C") == "C");
  CHECK(strip_reasoning_tags("<think>never closed") == "<think>never closed");
}

TEST_CASE("repr chooses the quote that needs no escape") {
  CHECK(repr("it's") == "\"it's\"");
  CHECK(repr("a\"b'c\n\x01") == "'a\"b\\'c\\n\\x01'");
}
