#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "device/weight_source.h"

namespace gristmill::weights {

/// A weight of made-up numbers: zero on average, of the size that keeps a product with a row of unit numbers at unit
/// size; vectors are near 1. They depend on name and place only. For measuring without a checkpoint.
/// `cls` is f32, bf16, i8_group or i4_group (groups of 32 columns; Q8_0's and Q4_0's form; columns that do not divide
/// into groups are kept as bf16), i8_channel or i4_channel.
std::shared_ptr<const device::WeightSource> make_dummy_source(const std::string& name, int64_t rows, int64_t columns,
                                                              device::ComputeClass cls);

}  // namespace gristmill::weights
