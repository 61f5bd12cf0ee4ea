#include "evaluator/tasks/python_json.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>

using namespace evalcar::tasks;

TEST_CASE("values are written as Python's json does") {
  Value value = Value::object();
  value["b"] = Value::array({1, 1.0, 1e-5, nullptr, true});
  value["a"] = "é\n\"\\\x01\x7f";

  CHECK(python_json(value) ==
        "{\"b\": [1, 1.0, 1e-05, null, true], \"a\": \"é\\n\\\"\\\\\\u0001\x7f\"}");
  CHECK(python_json(Value(std::numeric_limits<double>::quiet_NaN())) == "NaN");
  CHECK(python_json(Value(-std::numeric_limits<double>::infinity())) == "-Infinity");
  CHECK(python_json(Value("\xff")) == "\"\xEF\xBF\xBD\"");
}

TEST_CASE("str of a list is its repr and of a text the text") {
  CHECK(python_str(Value("it's")) == "it's");
  CHECK(python_str(Value::array({"it's", 1, 2.5, nullptr, false})) ==
        "[\"it's\", 1, 2.5, None, False]");
}

TEST_CASE("nesting is bounded before the parser sees it") {
  CHECK(parse_json(std::string(64, '[') + std::string(64, ']')).has_value());
  CHECK_FALSE(parse_json(std::string(65, '[') + std::string(65, ']')).has_value());
  CHECK_FALSE(parse_json(std::string(1'000'000, '[')).has_value());
  CHECK(parse_json("\"" + std::string(100, '[') + "\"").has_value());
}

TEST_CASE("Python's NaN is read as null but stays in texts") {
  const auto value = parse_json(R"({"a": [NaN, -Infinity, 1], "b": "NaN \" Infinity"})");
  REQUIRE(value.has_value());
  CHECK((*value)["a"] == Value::array({nullptr, nullptr, 1}));
  CHECK((*value)["b"] == "NaN \" Infinity");
}
