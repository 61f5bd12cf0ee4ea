// Lines of the log that programs read as well as people: a sentence, and behind it what happened as
// fields.
//
//   checkpoint-500 ema: scored in 131.2 s  event=evaluated run=out-1a2b3c4d step=500 kind=ema
//   seconds=131.200                                                          (in one line)
//
// One form for standard error, files and the journal, which knows a line's time and priority
// itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace evalcar::log {

/// What happened, as fields "name=value" of logfmt, in the order in which they were added. A value
/// with a space, a quote, a backslash or an equals sign in it, and an empty one, is quoted, with
/// \",
/// \\ and \x20 (a space behind a space) inside; what no terminal should see is escaped as
/// printable() does before that. So the last "  event=" of a line begins its fields.
class Event {
 public:
  /// `name`: one word.
  explicit Event(std::string_view name) : fields_("event=") { fields_ += name; }

  Event& with(std::string_view name, std::string_view value);
  Event& with(std::string_view name, std::int64_t value);
  /// Three digits behind the point.
  Event& with(std::string_view name, double value);

  const std::string& fields() const { return fields_; }

 private:
  Event& append(std::string_view name, std::string_view literal);

  std::string fields_;
};

/// The sentence and its fields as a line of the log. Of a text of several lines the first one gets
/// the fields. What the text itself has that looks like their begin loses a space.
void info(std::string_view text, const Event& event);
void warn(std::string_view text, const Event& event);
void error(std::string_view text, const Event& event);

}  // namespace evalcar::log
