#pragma once
#include <cstdint>
#include <span>

#include "device/backend.h"

namespace gristmill::device::reference {

/// One slot of the recurrent state of a reference executable, layer after layer (DeltaNetLayout); for tests. Empty for
/// executables of other back ends, and for slots that are not there.
std::span<const float> recurrent_state(const Executable& executable, int32_t slot);

}  // namespace gristmill::device::reference
