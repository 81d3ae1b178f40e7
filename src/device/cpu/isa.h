#pragma once
#include <string>
#include <vector>

namespace gristmill::device::cpu {

struct Kernels;  // device/cpu/kernels.h

/// The kernel sets that this build has and this machine can run, the fastest first; "portable" is always the last. All
/// of them give the same bits.
std::vector<const Kernels*> usable_kernels();

/// The set of that name, or the fastest for "". By its name only: "amx-bf16", whose linears of bf16 weights have other
/// bits than all other sets'. Throws Error with the list of usable ones.
const Kernels& find_kernels(const std::string& name);

/// The set that GRISTMILL_ISA names, or the fastest where it is unset or empty.
const Kernels& choose_kernels();

}  // namespace gristmill::device::cpu
