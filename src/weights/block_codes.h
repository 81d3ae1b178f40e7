#pragma once
#include <cstddef>
#include <cstdint>

#include "base/tensor.h"
#include "device/weight_source.h"

namespace gristmill::weights {

/// The compute class that keeps a weight type's bytes, and how its codes get there:
///
///   F32, F16, BF16        themselves
///   Q4_0, Q4_1            i4_group of 32, the file's codes, scales and minima: exact
///   Q5_0, Q5_1, Q8_0      i8_group of 32, likewise: exact
///   IQ4_NL                i8_group of 32, codes from its table: exact
///   MXFP4                 i8_group of 32, codes from its table: exact for scales from 2^-23 to 2^16 (binary16's range)
///   Q4_K                  i4_group of 32 with minimum, Q5_K and IQ4_XS i8_group of 32: the file's codes; the product
///   of
///                         block scale and group scale is rounded to binary16 (relative 2^-11)
///   Q2_K, Q3_K, Q6_K      i8_group of 32, requantized, since their groups are of 16: scale = absmax / 127 in binary16,
///                         error at most 0.51 scale per weight
device::Encoding encoding_of(StorageType type);

/// Codes of `columns` elements (a multiple of the block) of a type whose class is i4_group or i8_group: `codes` one
/// byte each, `scales` and (with a minimum) `mins` one binary16 per group.
void read_block_codes(StorageType type, const std::byte* row, int64_t columns, uint8_t* codes, uint16_t* scales,
                      uint16_t* mins);

}  // namespace gristmill::weights
