// The values of a chat template: Python's, as far as templates can tell.
//
// Containers are never changed once they are made (the environment is a sandbox), so values share
// them. Only namespaces change; the Runtime empties them all at the end, so that no cycle outlives
// a render.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace evalcar::text::jinja {

class Runtime;
class Value;
struct List;
struct Dict;
class Object;

/// A variable that was never set, or a key that is not there: falsy, prints as nothing, and an
/// error if anything else is asked of it.
struct Undefined {
  std::shared_ptr<const std::string> why;  ///< the error's text
};
struct None {};

struct Arguments;

class Value {
 public:
  Value() = default;                           ///< undefined
  Value(None) : data_(None{}) {}               // NOLINT: implicit by design
  Value(bool value) : data_(value) {}          // NOLINT
  Value(std::int64_t value) : data_(value) {}  // NOLINT
  Value(double value) : data_(value) {}        // NOLINT
  Value(std::string value)                     // NOLINT
      : data_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::shared_ptr<const List> value) : data_(std::move(value)) {}  // NOLINT
  Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}  // NOLINT
  Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}      // NOLINT
  Value(const char*) = delete;
  static Value undefined(std::string why);
  static Value size(std::size_t value) { return static_cast<std::int64_t>(value); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const std::string& why_undefined() const;

  // Null if the value is of another kind.
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* string() const;
  const List* list() const;
  const Dict* dict() const;
  Object* object() const;

  /// A bool or an int, as Python counts with them.
  bool as_integer(std::int64_t& out) const;
  /// A bool, an int or a float.
  bool as_number(double& out) const;
  /// Python's name of the type ("str", "dict", …).
  std::string_view type_name() const;
  /// How deep lists and dicts are nested in it: 0 for plain values.
  int depth() const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

/// A list, or what Python makes of it: a tuple, a dict's view, a generator (truthy, without length,
/// empty once it was gone through).
struct List {
  enum class Form { kList, kTuple, kView, kGenerator };
  std::vector<Value> items;
  Form form = Form::kList;
  int depth = 1;
  mutable bool consumed = false;  ///< of a generator; a template is rendered by one thread
};

/// In the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  const Value* find(std::string_view name) const;
};

/// Namespaces, macros, loop variables and methods.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  /// Undefined if there is no such attribute.
  virtual Value attribute(Runtime& runtime, std::string_view name);
  virtual Value call(Runtime& runtime, const Arguments& arguments);
  virtual bool callable() const { return false; }
  /// Sets an attribute; false if the object is no namespace.
  virtual bool assign(std::string_view name, Value value);
  /// Lets go of other values.
  virtual void clear() {}
};

/// Makes containers; a failure (nested too deep) is the runtime's.
Value make_list(Runtime& runtime, std::vector<Value> items, List::Form form = List::Form::kList);
Value make_dict(Runtime& runtime, std::vector<std::pair<Value, Value>> items);

bool truth(const Value& value);
bool equal(Runtime& runtime, const Value& left, const Value& right);
/// left < right; fails with a TypeError for kinds that have no order.
bool less(Runtime& runtime, const Value& left, const Value& right);
/// `item in container`.
bool contains(Runtime& runtime, const Value& container, const Value& item);
/// The items that iterating gives: elements, keys, characters.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
/// The dict's value of the key, or null.
const Value* find_key(Runtime& runtime, const Dict& dict, const Value& key);

/// str(value) and repr(value).
std::string to_text(Runtime& runtime, const Value& value);
std::string to_repr(Runtime& runtime, const Value& value);
/// repr of a float: the shortest digits that read back the same.
std::string float_text(double value);

}  // namespace evalcar::text::jinja
