#include "quantize/input_ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "device/reference/inspect.h"
#include "model/model.h"

namespace gristmill::quantize {

InputRanges measure_input_ranges(const std::string& path, const std::vector<std::vector<int32_t>>& sequences,
                                 Progress& progress) {
  size_t longest = 0, tokens = 0;
  for (const auto& sequence : sequences) {
    longest = std::max(longest, sequence.size());
    tokens += sequence.size();
  }
  if (tokens == 0) throw Error("calibration needs a text of at least one token");
  model::BuildOptions options;
  options.exact = true;
  const model::Model model = model::load_model(path, options);
  const auto backend = device::make_reference_backend();
  const auto limit = static_cast<int>(longest);
  if (limit > model.config.context)
    throw Error(cat("calibration sequences of ", limit, " tokens exceed the context of ", model.config.context));
  constexpr int kBlock = 16;
  const auto executable = backend->compile(model.program, {limit, 1, 1, limit}, {DType::f32, kBlock});
  std::vector<int32_t> blocks(longest / kBlock + 1);
  std::iota(blocks.begin(), blocks.end(), 0);
  device::BindOptions bind;
  bind.num_blocks = static_cast<int>(blocks.size());
  bind.num_states = 1;
  executable->bind(bind);

  InputRanges ranges;
  device::reference::watch_linears(*executable, [&](const device::WeightSource& weight, std::span<const float> rows) {
    InputRange& range = ranges[weight.name()];
    if (!std::all_of(rows.begin(), rows.end(), [](float value) { return std::isfinite(value); })) {
      range = {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
      return;
    }
    const auto [low, high] = std::minmax_element(rows.begin(), rows.end());
    range.low = std::min(range.low, *low);
    range.high = std::max(range.high, *high);
  });
  progress.begin("calibrating (tokens)", tokens);
  for (const auto& ids : sequences) {
    const auto count = static_cast<int32_t>(ids.size());
    if (count == 0) continue;
    const device::SequenceStep sequence{0, count, 0, blocks, 0};
    const std::vector<int32_t> rows{count - 1};
    const std::vector<uint8_t> want{0};
    executable->wait(executable->launch({count, 1, 1, false}, {ids, {&sequence, 1}, rows, want}));
    progress.advance(ids.size());
  }
  progress.end();
  return ranges;
}

}  // namespace gristmill::quantize
