// What the error that ended a run asks of the engine.
#pragma once

#include <string>

#include "store/base/result.h"

namespace evalcar::engine {

/// Others hold the device, or its memory: the run waits for them.
bool is_device_busy(const Status& status);
/// There was not enough memory for what was computed together: less of it may go.
bool is_out_of_memory(const Status& status);
/// A device fault, as a lost device where NVML knows that the GPU of this uuid ("": none) is: to
/// the process one that fell off the bus is one more fault. Any other error as it is.
Error looked_into(Error error, const std::string& uuid);

}  // namespace evalcar::engine
