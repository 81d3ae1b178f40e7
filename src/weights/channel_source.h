#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace gristmill::weights {

/// How the codes of a matrix lie in its tensor.
enum class CodeStorage : uint8_t {
  int8,            ///< [rows][columns], one code a byte
  int4_bytes,      ///< likewise, of which the lower four bits count (two's complement)
  int4_row_pairs,  ///< [rows / 2][columns]: row 2r in the low nibble, row 2r + 1 in the high one
};

/// A matrix of integer codes with float32 scales, as its checkpoint has it.
struct ChannelCodes {
  std::string name;
  TensorView tensor;
  CodeStorage storage = CodeStorage::int8;
  int64_t rows = 0;
  int64_t columns = 0;
  int group = 0;                             ///< columns that share a scale; 0: all
  std::vector<float> scales;                 ///< [rows][1, or columns / group rounded up]
  std::vector<float> offsets{};              ///< w = (code - offset) * scale; of the scales' shape, empty: zeros
  std::optional<device::StaticInput> input;  ///< how activations are quantized, if that is known beforehand ...
  std::vector<int32_t> addends{};            ///< ... and what the sums start from then, [rows]
  bool integers = true;                      ///< false: activations stay float (weight-only formats)
};

/// The weight, as i8_channel or i4_channel, in i8_float for formats of weights alone with one scale for a row and no
/// offset, or in float32 where `read_as` or the format want that. Throws Error naming the tensor when sizes do not
/// agree, when a row is too long for 32-bit sums of products, and for `exact` with a static input, whose bias is not
/// among the float values.
std::shared_ptr<const device::WeightSource> make_channel_source(std::shared_ptr<const Checkpoint> checkpoint,
                                                                ChannelCodes codes, ReadAs read_as);

/// All numbers of a float tensor. Throws Error naming it for other types, another number of elements than `elements`,
/// and numbers that are not finite.
std::vector<float> read_finite_floats(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& name,
                                      int64_t elements);

}  // namespace gristmill::weights
