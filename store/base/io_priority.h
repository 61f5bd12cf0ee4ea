// How urgent a thread's reads and writes are to the disk's scheduler: "man ioprio_set". The numbers
// are of the kernel's interface and are written down here: glibc has no names for them, and
// linux/ioprio.h, which has, is not C++ in every version of the kernel's headers (Linux 6.1.192
// names a parameter `class`).
#pragma once

namespace evalcar {

/// A class and, within best effort, a level: 0 is served first, 7 last.
struct IoPriority {
  enum class Class { kNone = 0, kRealTime = 1, kBestEffort = 2, kIdle = 3 };
  Class io_class = Class::kNone;
  int level = 0;

  friend bool operator==(const IoPriority&, const IoPriority&) = default;
};

/// Of the calling thread. Where nobody set one, kNone or, by some kernels, what follows from the
/// nice value; kNone, too, where the system does not tell. Safe between fork and exec.
IoPriority io_priority();

/// Of the calling thread, and of those that it starts from now on. False where the system refuses:
/// a container may, and for Class::kRealTime it takes a privilege. Safe between fork and exec.
bool set_io_priority(IoPriority priority);

}  // namespace evalcar
