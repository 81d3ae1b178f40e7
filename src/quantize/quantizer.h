#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "quantize/input_ranges.h"

namespace gristmill::quantize {

enum class Scheme : uint8_t {
  w8a8,         ///< W8A8_DYNAMIC
  w8a8_static,  ///< W8A8, experts W8A8_DYNAMIC
  w4a8,         ///< W4A8_DYNAMIC per channel
  w4a8_group,   ///< W4A8_DYNAMIC in groups
};

struct QuantizeOptions {
  std::string source;  ///< a Hugging Face folder of float weights (or FP8 in blocks)
  std::string target;  ///< a folder that does not exist yet
  Scheme scheme = Scheme::w8a8;
  std::string recipe;  ///< minimax-m2, qwen3.5 or all-linear; "": the architecture's usual one
  bool quarot = false;
  /// With quarot: nothing is quantized, the folder is a float one with the rotation inside.
  bool only_rotate = false;
  uint64_t shard_bytes = uint64_t{4} << 30;
  int threads = 1;
};

/// What quantizing cost.
struct QuantizeReport {
  struct Layer {
    int64_t matrices = 0;
    double error = 0, size = 0;  ///< sums of (w - quantized w)^2 and of w^2
  };
  std::map<int64_t, Layer> layers;       ///< by number; -1: outside of the layers
  std::map<std::string, int64_t> types;  ///< matrices of each type, FLOAT without the vectors
  uint64_t source_bytes = 0, target_bytes = 0;
  size_t shards = 0;
  int group = 0;
  int64_t left_out = 0;  ///< tensors of draft heads, which quarot cannot keep
};

/// The number behind "layers." of a tensor's name; -1 where there is none, and for draft heads ("mtp.").
int64_t layer_of(const std::string& tensor);

/// `name` without trailing slashes, if a folder of that name can be made. Throws Error when it is empty or taken.
std::string new_folder(const std::string& name);

/// The ranges that w8a8_static needs: measured on the source, with quarot on a rotated float copy of it beside the
/// target, which is removed again. Throws Error as quantize_folder() and measure_input_ranges() do.
InputRanges calibrate(const QuantizeOptions& options, const std::vector<std::vector<int32_t>>& sequences,
                      Progress& progress);

/// Writes the folder in msmodelslim's layout ("ascend"): weights, index, description, and the source's config and
/// tokenizer files. `ranges` are the inputs of the linears for w8a8_static. The folder appears under its name when it
/// is complete; a failure leaves nothing behind. Throws Error naming what does not fit, or the tensor that holds a
/// number that is not finite.
QuantizeReport quantize_folder(const QuantizeOptions& options, const InputRanges& ranges, Progress& progress);

}  // namespace gristmill::quantize
