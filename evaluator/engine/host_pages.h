// The host's memory between one tensor and the next, where the CPU computes.
#pragma once

namespace evalcar::engine {

/// From now on what is allocated and freed on the main thread stays with this process for what it
/// allocates next, until give_back_freed_pages(). The C library (glibc) gives large blocks back at
/// once, and the kernel has to find and clear pages for the next one: of each layer's numbers, 3 to
/// 8 % of a picture's time (profiled with small models). Of another thread that holds for blocks
/// up to some 60 MiB. With another C library nothing changes. Any number of times, any thread.
void keep_freed_pages();

/// Gives the system nearly all that is free. Any thread.
void give_back_freed_pages();

}  // namespace evalcar::engine
