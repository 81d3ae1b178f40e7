#pragma once
#include <cstdint>

namespace gristmill {

/// Bytes this process may use: the machine's memory, lowered to the limits of the cgroups (v1 and v2) it runs in.
uint64_t memory_limit();

/// Bytes that are free or can be freed without swapping, under the same limits.
uint64_t memory_available();

/// Resident set of this process.
uint64_t resident_bytes();

}  // namespace gristmill
