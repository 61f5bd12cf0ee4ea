// The filters that take a sequence item by item, as Jinja2 3.1 defines them.
#include <algorithm>
#include <charconv>
#include <functional>
#include <string>
#include <utility>

#include "evaluator/text/jinja_filter_call.h"
#include "evaluator/text/jinja_parser.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {

Value by_path(Runtime& runtime, Value value, const Value& path) {
  if (path.string() == nullptr) return get_item(runtime, value, path);
  const std::string& text = *path.string();
  for (std::size_t begin = 0; begin <= text.size() && !runtime.failed();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    std::int64_t index = 0;
    const bool numeric =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos &&
        std::from_chars(part.data(), part.data() + part.size(), index).ec == std::errc();
    value = get_item(runtime, value, numeric ? Value(index) : Value(part));
    begin = end + 1;
  }
  return value;
}

namespace {

// Strings compare without regard to case unless it is asked for.
Value sort_key(const Call& call, const Value& item, const Value* attribute, bool case_sensitive) {
  const Value key =
      attribute == nullptr || attribute->is_none() ? item : by_path(call.runtime, item, *attribute);
  if (!case_sensitive && key.string() != nullptr) return to_lower(*key.string());
  return key;
}

Value do_map(const Call& call) {
  std::vector<Value> items = call.items();
  if (const Value* attribute = call.arguments.find("attribute")) {
    const Value* otherwise = call.arguments.find("default");
    for (Value& item : items) {
      item = by_path(call.runtime, item, *attribute);
      if (item.is_undefined() && otherwise != nullptr) item = *otherwise;
    }
    return call.generator(std::move(items));
  }
  if (call.arguments.positional.empty() || call.arguments.positional[0].string() == nullptr)
    return call.runtime.fail("map requires a filter argument");
  const std::string name = *call.arguments.positional[0].string();
  Arguments rest = call.arguments;
  rest.positional.erase(rest.positional.begin());
  for (Value& item : items) {
    if (call.runtime.failed()) break;
    item = apply_filter(call.runtime, name, item, rest);
  }
  return call.generator(std::move(items));
}

// select, reject, selectattr, rejectattr: with a test, or by truth.
Value pick(const Call& call, bool by_attribute, bool wanted) {
  Arguments rest = call.arguments;
  Value attribute, test;
  const auto take_first = [&](Value& into) {
    if (rest.positional.empty()) return;
    into = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  };
  if (by_attribute) {
    take_first(attribute);
    if (attribute.is_undefined()) return call.runtime.fail("missing parameter for attribute name");
  }
  take_first(test);
  std::vector<Value> picked;
  for (const Value& item : call.items()) {
    if (call.runtime.failed()) break;
    const Value subject = by_attribute ? by_path(call.runtime, item, attribute) : item;
    const bool passes = test.string() == nullptr
                            ? truth(subject)
                            : apply_test(call.runtime, *test.string(), subject, rest);
    if (passes == wanted) picked.push_back(item);
  }
  return call.generator(std::move(picked));
}

// The keys of sort's "a,b": one after the other.
Value sort_keys(const Call& call, const Value& item, const Value* attributes, bool case_sensitive) {
  if (attributes == nullptr || attributes->string() == nullptr)
    return sort_key(call, item, attributes, case_sensitive);
  std::vector<Value> keys;
  const std::string& names = *attributes->string();
  for (std::size_t begin = 0; begin <= names.size() && !call.runtime.failed();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const Value name(names.substr(begin, end - begin));
    keys.push_back(sort_key(call, item, &name, case_sensitive));
    begin = end + 1;
  }
  return make_list(call.runtime, std::move(keys));
}

Value do_sort(const Call& call) {
  const bool case_sensitive = call.flag(1, "case_sensitive");
  const Value* attribute = call.get(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : call.items())
    keyed.emplace_back(sort_keys(call, item, attribute, case_sensitive), item);
  const bool reverse = call.flag(0, "reverse");
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    if (call.runtime.failed()) return false;  // keeps the order a strict one
    return reverse ? less(call.runtime, b.first, a.first) : less(call.runtime, a.first, b.first);
  });
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return make_list(call.runtime, std::move(items));
}

Value do_dictsort(const Call& call) {
  const Dict* dict = call.input.dict();
  if (dict == nullptr) return call.runtime.type_error("dictsort wants a dict");
  const std::string by = call.text(1, "by", "key");
  const bool case_sensitive = call.flag(0, "case_sensitive"), reverse = call.flag(2, "reverse");
  auto items = dict->items;
  const auto key = [&](const auto& item) {
    return sort_key(call, by == "value" ? item.second : item.first, nullptr, case_sensitive);
  };
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    if (call.runtime.failed()) return false;
    return reverse ? less(call.runtime, key(b), key(a)) : less(call.runtime, key(a), key(b));
  });
  std::vector<Value> pairs;
  for (const auto& [name, value] : items)
    pairs.push_back(make_list(call.runtime, {name, value}, List::Form::kTuple));
  return make_list(call.runtime, std::move(pairs));
}

Value do_unique(const Call& call) {
  const bool case_sensitive = call.flag(0, "case_sensitive");
  const Value* attribute = call.get(1, "attribute");
  std::vector<Value> seen, kept;
  for (const Value& item : call.items()) {
    const Value key = sort_key(call, item, attribute, case_sensitive);
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equal(call.runtime, key, other);
    });
    if (known || call.runtime.failed()) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return call.generator(std::move(kept));
}

Value extreme(const Call& call, bool largest) {
  const bool case_sensitive = call.flag(0, "case_sensitive");
  const Value* attribute = call.get(1, "attribute");
  Value best = Value::undefined("No aggregated item, sequence was empty."), best_key;
  bool first = true;
  for (const Value& item : call.items()) {
    const Value key = sort_key(call, item, attribute, case_sensitive);
    const bool better =
        first || (largest ? less(call.runtime, best_key, key) : less(call.runtime, key, best_key));
    if (better) {
      best = item;
      best_key = key;
    }
    first = false;
  }
  return best;
}

Value do_sum(const Call& call) {
  const Value* attribute = call.get(0, "attribute");
  const Value* start = call.get(1, "start");
  std::int64_t whole = 0;
  double real = 0;
  bool is_whole = true;
  const auto add = [&](const Value& value) {
    std::int64_t number = 0;
    double part = 0;
    if (!value.as_number(part)) {
      call.runtime.type_error("unsupported operand type(s) for +: '" +
                              std::string(value.type_name()) + "'");
    }
    if (!value.as_integer(number) || __builtin_add_overflow(whole, number, &whole))
      is_whole = false;
    real += part;
  };
  if (start != nullptr) add(*start);
  for (const Value& item : call.items())
    add(attribute == nullptr || attribute->is_none() ? item
                                                     : by_path(call.runtime, item, *attribute));
  return is_whole ? Value(whole) : Value(real);
}

Value do_batch(const Call& call) {
  const std::int64_t size = call.integer(0, "linecount", 0);
  if (size <= 0) return call.runtime.fail("batch wants a positive number");
  const Value* fill = call.get(1, "fill_with");
  std::vector<Value> rows, row;
  for (const Value& item : call.items()) {
    if (static_cast<std::int64_t>(row.size()) == size)
      rows.push_back(make_list(call.runtime, std::exchange(row, {})));
    row.push_back(item);
  }
  if (fill != nullptr && !fill->is_none() && !row.empty())
    while (static_cast<std::int64_t>(row.size()) < size && call.runtime.charge(1))
      row.push_back(*fill);
  if (!row.empty()) rows.push_back(make_list(call.runtime, std::move(row)));
  return call.generator(std::move(rows));
}

}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable table = {
      {"batch", do_batch},
      {"dictsort", do_dictsort},
      {"map", do_map},
      {"max", [](const Call& call) { return extreme(call, true); }},
      {"min", [](const Call& call) { return extreme(call, false); }},
      {"reject", [](const Call& call) { return pick(call, false, false); }},
      {"rejectattr", [](const Call& call) { return pick(call, true, false); }},
      {"select", [](const Call& call) { return pick(call, false, true); }},
      {"selectattr", [](const Call& call) { return pick(call, true, true); }},
      {"sort", do_sort},
      {"sum", do_sum},
      {"unique", do_unique},
  };
  return table;
}

}  // namespace evalcar::text::jinja
