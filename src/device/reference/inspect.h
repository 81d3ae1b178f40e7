#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "device/backend.h"

namespace gristmill::device::reference {

/// One slot of the recurrent state of a reference executable, layer after layer (DeltaNetLayout); for tests. Empty for
/// executables of other back ends, and for slots that are not there.
std::span<const float> recurrent_state(const Executable& executable, int32_t slot);

/// Calls `observer` with the rows that each linear of an op reads (behind its norm), step by step; for calibration.
/// Executables of other back ends are left alone.
using LinearObserver = std::function<void(const WeightSource& weight, std::span<const float> rows)>;
void watch_linears(Executable& executable, LinearObserver observer);

}  // namespace gristmill::device::reference
