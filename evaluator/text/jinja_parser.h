// Chat template source → syntax tree, with Jinja2's grammar.
#pragma once

#include <string_view>

#include "evaluator/text/jinja_ast.h"
#include "store/base/result.h"

namespace evalcar::text::jinja {

/// kCorruption for what breaks Jinja's grammar, kUnsupported for a statement, filter or test that
/// is not known here; both begin with "line N: ".
Result<Block> parse(std::string_view source);

/// Is there a filter (a test) of this name? In jinja_filters.cpp and jinja_tests.cpp.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

}  // namespace evalcar::text::jinja
