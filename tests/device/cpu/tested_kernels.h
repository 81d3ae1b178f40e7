#pragma once
#include <vector>

#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {

/// The sets that kernels are tested with: those that this machine can run, and the x86 sets over an emulation of their
/// instructions, named NAME-emulated. Linears of codes and, with 16 lanes, everything else is as in the set itself.
/// Emulations are left out where GRISTMILL_TEST_NO_EMULATION is set: they are the same on all machines.
std::vector<const Kernels*> tested_kernels();

}  // namespace gristmill::device::cpu
