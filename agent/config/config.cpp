#include "agent/config/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "store/base/text.h"

namespace evalcar::config {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1U << 20U;
constexpr int kWeightOfOthers = 100;  // systemd.resource-control(5): where nothing is set

std::string literal_of(const Value& value) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  if (const auto* b = std::get_if<bool>(&value)) {
    out << (*b ? "true" : "false");
  } else if (const auto* n = std::get_if<std::int64_t>(&value)) {
    out << *n;
  } else if (const auto* d = std::get_if<double>(&value)) {
    out << toml::value<double>(*d);
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    out << quote(*s);
  } else {
    out << '[';
    const char* separator = "";
    for (const std::string& element : std::get<std::vector<std::string>>(value)) {
      out << separator << quote(element);
      separator = ", ";
    }
    out << ']';
  }
  return out.str();
}

/// A scalar, a list of strings, or a table of strings (as "k=v"); absent for anything else.
std::optional<Value> value_of(const toml::node& node) {
  if (const auto* b = node.as_boolean()) return Value(b->get());
  if (const auto* n = node.as_integer()) return Value(n->get());
  if (const auto* d = node.as_floating_point()) return Value(d->get());
  if (const auto* s = node.as_string()) return Value(s->get());
  std::vector<std::string> list;
  if (const auto* array = node.as_array()) {
    for (const toml::node& element : *array) {
      if (!element.is_string()) return std::nullopt;
      list.push_back(element.as_string()->get());
    }
    return Value(std::move(list));
  }
  if (const auto* table = node.as_table()) {
    for (const auto& [key, element] : *table) {
      if (!element.is_string()) return std::nullopt;
      list.push_back(std::string(key.str()) + "=" + element.as_string()->get());
    }
    return Value(std::move(list));
  }
  return std::nullopt;
}

Result<toml::table> parse_toml(const std::string& content, const std::string& name) {
  try {
    return toml::parse(content, name);
  } catch (const toml::parse_error& error) {
    std::ostringstream where;
    where << name << ":" << error.source().begin.line << ":" << error.source().begin.column << ": "
          << error.description();
    return make_error(ErrorCode::kInvalidArgument, where.str());
  }
}

/// The value of a literal of ours; they are all valid.
Value parse_literal(std::string_view literal) {
  const auto table = parse_toml("x = " + std::string(literal), "default");
  assert(table.has_value());
  return *value_of(*table->get("x"));
}

/// Collects problems instead of stopping at the first: a user wants to see all of them.
class Loader {
 public:
  Loader() {
    for (const Key& key : keys()) {
      std::string literal(key.initial);
      if (!literal.empty()) {
        const Value value = parse_literal(literal);
        [[maybe_unused]] const Status assigned = key.assign(config_.settings, value);
        assert(assigned.has_value());
        literal = literal_of(value);
      }
      config_.entries.push_back({&key, std::move(literal), "default"});
    }
  }

  void set(std::string_view name, const std::optional<Value>& value, const std::string& source) {
    const Key* const key = find_key(name);
    if (key == nullptr) {
      problems_.push_back(source + ": unknown key \"" + std::string(name.substr(0, 80)) +
                          "\"; did you mean \"" + std::string(nearest_key(name)) + "\"?");
      return;
    }
    const Status assigned =
        value.has_value()
            ? key->assign(config_.settings, *value)
            : make_error(ErrorCode::kInvalidArgument, "a value of this type is not understood");
    if (!assigned.has_value()) {
      const std::string seen = value.has_value() ? ", seen " + literal_of(*value) : "";
      problems_.push_back(source + ": " + std::string(name) + ": " + assigned.error().message +
                          seen);
      return;
    }
    Entry& entry = *std::find_if(config_.entries.begin(), config_.entries.end(),
                                 [key](const Entry& e) { return e.key == key; });
    const std::string literal = literal_of(*value);
    note_effect(*key, literal, source);
    entry.literal = literal;
    entry.source = source;
  }

  void set_section(std::string_view section, const toml::node& node, const std::string& file) {
    const auto at = [&file](const toml::node& n) {
      return file + ":" + std::to_string(n.source().begin.line);
    };
    const auto* table = node.as_table();
    if (table == nullptr) {
      problems_.push_back(at(node) + ": \"" + std::string(section.substr(0, 80)) +
                          "\" stands outside a section; did you mean \"" +
                          std::string(nearest_key(section)) + "\"?");
      return;
    }
    for (const auto& [key, value] : *table) {
      set(std::string(section) + "." + std::string(key.str()), value_of(value), at(value));
    }
  }

  void fail(std::string problem) { problems_.push_back(std::move(problem)); }

  Result<Config> finish() && {
    const EvaluateSettings& e = config_.settings.evaluate;
    if (e.min_pixels > e.max_pixels) {
      fail("evaluate.min_pixels: " + std::to_string(e.min_pixels) +
           " is more than evaluate.max_pixels, " + std::to_string(e.max_pixels));
    }
    check_tasks_of("evaluate.task_every_nth", e.task_every_nth);
    check_tasks_of("evaluate.task_eval_steps", e.task_eval_steps);
    check_preempt();
    config_.settings.evaluate.max_pixels_set = is_set_to_default("evaluate.max_pixels");
    config_.settings.evaluate.min_pixels_set = is_set_to_default("evaluate.min_pixels");
    if (problems_.empty()) return std::move(config_);
    Error all = make_error(ErrorCode::kInvalidArgument, problems_.front());
    for (std::size_t i = 1; i < problems_.size(); ++i)
      all = with_lines(std::move(all), problems_[i]);
    return all;
  }

 private:
  /// A cadence of a task that is not evaluated would be a typing error.
  void check_tasks_of(const std::string& key, const std::map<std::string, std::int64_t>& counts) {
    const std::vector<std::string>& tasks = config_.settings.evaluate.tasks;
    for (const auto& [task, count] : counts) {
      if (std::find(tasks.begin(), tasks.end(), task) != tasks.end()) continue;
      const std::string problem = key + ": \"" + task + "\" is not one of evaluate.tasks";
      if (of_command_line("evaluate.tasks") && !of_command_line(key)) {  // the file may have it
        config_.warnings.push_back(problem + " as " + source_of("evaluate.tasks") +
                                   " names them: without effect");
      } else {
        fail(problem);
      }
    }
  }
  const std::string& source_of(std::string_view key) const {
    return std::find_if(config_.entries.begin(), config_.entries.end(),
                        [key](const Entry& e) { return e.key->name == key; })
        ->source;
  }
  /// For most keys that is no difference.
  bool is_set_to_default(std::string_view key) const {
    const Entry& entry = *std::find_if(config_.entries.begin(), config_.entries.end(),
                                       [key](const Entry& e) { return e.key->name == key; });
    return entry.source != "default" &&
           entry.literal == literal_of(parse_literal(entry.key->initial));
  }
  bool of_command_line(std::string_view key) const { return source_of(key).starts_with("--"); }
  void check_preempt() {
    const EvaluateSettings& e = config_.settings.evaluate;
    if (!e.preempt) return;
    if (e.policy == Policy::kEvery) {
      config_.warnings.emplace_back(
          "evaluate.preempt has no effect with evaluate.policy = \"every\": older checkpoints go "
          "first");
    } else if (e.anytime.empty()) {
      config_.warnings.emplace_back(
          "evaluate.preempt has no effect with evaluate.anytime = []: only an evaluation that has "
          "told the score of a part makes way");
    }
  }
  /// `init` once wrote these as defaults, when they had no effect yet.
  void check_loosened(const Key& key, const std::string& message) {
    const LimitSettings& limits = config_.settings.limits;
    const bool of_cpu = key.name == "limits.cpu_weight";
    const bool of_disk = key.name == "limits.io_weight";
    const auto weight = of_cpu ? limits.cpu_weight : of_disk ? limits.io_weight : std::nullopt;
    std::string effect;
    if (weight.value_or(0) >= kWeightOfOthers) {
      effect = " gives the service as much as the trainer, which has " +
               std::to_string(kWeightOfOthers) + " where nobody set it";
    } else if (key.name == "limits.memory_max" && limits.memory_max == "infinity") {
      effect = " lets the service take the trainer's memory";
    }
    if (effect.empty()) return;
    config_.warnings.push_back(message + effect + "; leave the line out for what the unit has");
  }
  void note_effect(const Key& key, const std::string& literal, const std::string& source) {
    if (key.effect == Effect::kActive || literal == literal_of(parse_literal(key.initial))) return;
    const std::string message = source + ": " + std::string(key.name) + " = " + literal;
    if (key.effect == Effect::kRefused) {
      fail(message + ": this version cannot do that yet; leave it out (" +
           std::string(key.initial) + ")");
    } else if (key.effect == Effect::kOfUnit) {
      config_.unit_notes.push_back(message +
                                   " has no effect but through the unit's drop-in, which "
                                   "`evalcar init --systemd` writes");
      check_loosened(key, message);
    } else {
      config_.warnings.push_back(message + " has no effect in this version");
    }
  }

  Config config_;
  std::vector<std::string> problems_;
};

}  // namespace

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted.append({'\\', c});
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      quoted.append("\\u00").append({kDigits[byte >> 4U], kDigits[byte & 15U]});
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + '"';
}

Result<Override> parse_set_option(std::string_view option) {
  const std::size_t equals = option.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--set " + std::string(option) + ": expected section.key=value");
  }
  return Override{std::string(option.substr(0, equals)), std::string(option.substr(equals + 1)),
                  "--set"};
}

Result<Config> load(const FileSystem& files, const std::string& file,
                    const std::vector<Override>& overrides) {
  Loader loader;
  if (!file.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string content, read_file(files, file, kMaxFileBytes));
    EVALCAR_ASSIGN_OR_RETURN(const toml::table table, parse_toml(content, file));
    for (const auto& [section, node] : table) loader.set_section(section.str(), node, file);
  }
  for (const Override& given : overrides) {
    const auto table = parse_toml("x = " + given.text, "value");
    const bool one_value = table.has_value() && table->size() == 1 && table->contains("x");
    std::optional<Value> value;
    if (one_value) value = value_of(*table->get("x"));
    if (!value.has_value()) value = Value(given.text);  // 10s, a,b, /a/path: not TOML, but meant
    loader.set(given.key, value, given.source);
  }
  return std::move(loader).finish();
}

}  // namespace evalcar::config
