#include "quantize/input_ranges.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "device/backend.h"
#include "model/model.h"

namespace gristmill::quantize {

InputRanges measure_input_ranges(const std::string& path, const std::vector<std::vector<int32_t>>& sequences,
                                 int threads, Progress& progress) {
  size_t longest = 0, tokens = 0;
  for (const auto& sequence : sequences) {
    longest = std::max(longest, sequence.size());
    tokens += sequence.size();
  }
  if (tokens == 0) throw Error("calibration needs a text of at least one token");
  model::BuildOptions options;
  options.exact = true;
  options.watch_inputs = true;
  const model::Model model = model::load_model(path, options);
  const auto limit = static_cast<int>(longest);
  if (limit > model.config.context)
    throw Error(cat("calibration sequences of ", limit, " tokens exceed the context of ", model.config.context));
  constexpr int kBlock = 16, kChunk = 512;
  const int chunk = std::min(limit, kChunk);
  const auto backend = device::make_cpu_backend(threads, device::ActivationMode::f32);
  const auto executable = backend->compile(model.program, {chunk, 1, 1, limit}, {DType::f32, kBlock});
  std::vector<int32_t> blocks(longest / kBlock + 1);
  std::iota(blocks.begin(), blocks.end(), 0);
  device::BindOptions bind;
  bind.num_blocks = static_cast<int>(blocks.size());
  bind.num_states = 1;
  executable->bind(bind);

  InputRanges ranges;
  progress.begin("calibrating (tokens)", tokens);
  for (const auto& ids : sequences) {
    for (size_t first = 0; first < ids.size(); first += static_cast<size_t>(chunk)) {
      const auto count = static_cast<int32_t>(std::min(ids.size() - first, static_cast<size_t>(chunk)));
      const device::SequenceStep sequence{0, count, static_cast<int32_t>(first), blocks, 0};
      const std::vector<int32_t> rows{count - 1};
      const std::vector<uint8_t> want{0};
      const std::span part = std::span(ids).subspan(first, static_cast<size_t>(count));
      const device::StepResult& result =
          executable->wait(executable->launch({count, 1, 1, false}, {part, {&sequence, 1}, rows, want}));
      for (size_t slot = 0; slot < result.ranges.size(); ++slot)
        for (const device::WeightRef weight : model.program->watched()[slot]) {
          device::ValueRange& range = ranges[model.program->weight(weight).name()];
          range.low = std::min(range.low, result.ranges[slot].low);
          range.high = std::max(range.high, result.ranges[slot].high);
        }
      progress.advance(static_cast<uint64_t>(count));
    }
  }
  progress.end();
  return ranges;
}

}  // namespace gristmill::quantize
