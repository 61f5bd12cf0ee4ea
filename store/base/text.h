// Text from outside on its way to a terminal, a log or a database.
#pragma once

#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar {

/// The text as one line that no terminal obeys: control characters (C0, DEL, C1) and bytes that are
/// no UTF-8 become "\n", "\t", "\x1b", …; everything else stays. make_error() does this to every
/// message.
std::string printable(std::string_view text);

/// The error with lines of our own below its message (places that were looked at, a command to
/// run); each of them is made printable.
Error with_lines(Error error, std::string_view lines);

}  // namespace evalcar
