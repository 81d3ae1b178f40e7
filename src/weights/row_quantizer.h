#pragma once
#include <cstdint>

namespace gristmill::weights {

// One row of a matrix to codes with float32 scales, w ~ code * scale. Scales are at least 2^-23, so that they divide.

/// scale = max|w| / 127, code = round(w / scale), ties to even: msmodelslim's minmax.
void quantize_row_int8(const float* row, int64_t columns, int8_t* codes, float* scale);

/// Codes -8..7 with the scale of least squared error that is found: from several shares of max|w| / 7 on, codes and the
/// scale that is best for them (sum of w * code / sum of code^2) are found in turns until nothing gets better, as
/// msmodelslim's "ssz" does from the largest.
void quantize_row_int4(const float* row, int64_t columns, int8_t* codes, float* scale);

/// Two levels: int8 codes with `first` as their scale, and of those int4 codes in groups of `group` columns with
/// second[columns / group] as their scales; w ~ code * second * first. `columns` is a multiple of `group`.
void quantize_row_int4_groups(const float* row, int64_t columns, int64_t group, int8_t* codes, float* first,
                              float* second);

}  // namespace gristmill::weights
