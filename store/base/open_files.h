// How many files this process may have open.
#pragma once

#include <cstdint>

namespace evalcar {

/// Raises the soft limit on open files to the hard one, to at most 65536, and gives what it is now.
/// A checkpoint can have a file for every tensor, and a shell's usual 1024 are fewer; nothing here
/// uses select(), which is why the soft limit is low. Call it at the start of a program.
std::uint64_t raise_open_files_limit();

}  // namespace evalcar
