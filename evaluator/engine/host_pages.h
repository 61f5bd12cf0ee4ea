// The host's memory between one tensor and the next, where the CPU computes.
#pragma once

namespace evalcar::engine {

/// From now on what this process frees stays with it for what it allocates next, until
/// give_back_freed_pages(). The C library gives large blocks back at once, and the kernel has to
/// find and clear pages for the next one: of each layer's numbers, 8 to 12 % of a picture's time
/// (measured with small models). Of the whole process; any number of times, any thread.
void keep_freed_pages();

/// Gives the system what is free. Any thread.
void give_back_freed_pages();

}  // namespace evalcar::engine
