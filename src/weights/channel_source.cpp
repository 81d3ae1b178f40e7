#include "weights/channel_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {
namespace {

using device::CodeRows;
using device::ComputeClass;
using device::Encoding;

// |sum| <= 128 * 127 * columns must stay below 2^31.
constexpr int64_t kMostColumns = 132000;

Encoding encoding_of(const ChannelCodes& codes, ReadAs read_as) {
  if (read_as == ReadAs::exact) return {};
  if (!codes.integers) {
    const bool plain = codes.storage == CodeStorage::int8 && codes.group == 0 &&
                       std::all_of(codes.offsets.begin(), codes.offsets.end(), [](float o) { return o == 0.0f; });
    return plain ? Encoding{ComputeClass::i8_float, 0, 0, false} : Encoding{};
  }
  const ComputeClass cls = codes.storage == CodeStorage::int8 ? ComputeClass::i8_channel : ComputeClass::i4_channel;
  return {cls, codes.group, 0, false, codes.input};
}

int sign_extended(unsigned nibble) {
  return static_cast<int>(nibble ^ 8u) - 8;
}

class ChannelSource final : public device::WeightSource {
 public:
  ChannelSource(std::shared_ptr<const Checkpoint> checkpoint, ChannelCodes codes, ReadAs read_as)
      : WeightSource(codes.name, codes.rows, codes.columns, encoding_of(codes, read_as), codes.tensor.bytes.size()),
        checkpoint_(std::move(checkpoint)),
        codes_(std::move(codes)),
        scales_per_row_(static_cast<int64_t>(codes_.scales.size()) / codes_.rows) {}

  void read_f32(int64_t first, int64_t count, float* out) const override {
    const float divisor = codes_.input ? codes_.input->scale : 1.0f;
    for (int64_t row = first; row < first + count; ++row)
      for (int64_t k = 0; k < columns(); ++k) {
        const auto at = static_cast<size_t>(row * scales_per_row_ + (scales_per_row_ == 1 ? 0 : k / codes_.group));
        const float offset = codes_.offsets.empty() ? 0.0f : codes_.offsets[at];
        *out++ = (static_cast<float>(code(row, k)) - offset) * (codes_.scales[at] / divisor);
      }
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const from = bytes_of(first + i);
      uint8_t* const to = out.codes + i * columns();
      if (codes_.storage == CodeStorage::int8) {
        std::copy_n(from, columns(), to);
        continue;
      }
      const int shift = shift_of(first + i);
      for (int64_t k = 0; k < columns(); ++k) to[k] = static_cast<uint8_t>(sign_extended(from[k] >> shift & 0x0fu));
    }
    std::copy_n(codes_.scales.data() + first * scales_per_row_, count * scales_per_row_, out.channel_scales);
    if (out.addends != nullptr) std::copy_n(codes_.addends.data() + first, count, out.addends);
  }
  void release() const override { checkpoint_->drop_pages(codes_.tensor.bytes); }

 private:
  const uint8_t* bytes_of(int64_t row) const {
    const int64_t stored = codes_.storage == CodeStorage::int4_row_pairs ? row / 2 : row;
    return reinterpret_cast<const uint8_t*>(codes_.tensor.bytes.data()) + stored * columns();
  }
  int shift_of(int64_t row) const { return codes_.storage == CodeStorage::int4_row_pairs && row % 2 != 0 ? 4 : 0; }
  int code(int64_t row, int64_t k) const {
    const uint8_t byte = bytes_of(row)[k];
    if (codes_.storage == CodeStorage::int8) return static_cast<int8_t>(byte);
    return sign_extended(byte >> shift_of(row) & 0x0fu);
  }
  std::shared_ptr<const Checkpoint> checkpoint_;
  ChannelCodes codes_;
  int64_t scales_per_row_;
};

}  // namespace

std::shared_ptr<const device::WeightSource> make_channel_source(std::shared_ptr<const Checkpoint> checkpoint,
                                                                ChannelCodes codes, ReadAs read_as) {
  const auto fail = [&](const auto&... what) {
    throw Error(cat(checkpoint->path(), ": tensor ", quoted(codes.name), ": ", what...));
  };
  if (codes.tensor.type != StorageType::i8) fail("integer codes must be I8");
  const bool paired = codes.storage == CodeStorage::int4_row_pairs;
  if (codes.rows < 1 || codes.columns < 1 || (paired && codes.rows % 2 != 0))
    fail("an odd number of rows (", codes.rows, ") cannot be packed in pairs");
  if (codes.columns > kMostColumns) fail(codes.columns, " columns are more than 32-bit sums of products can hold");
  if (codes.tensor.bytes.size() != static_cast<size_t>((paired ? codes.rows / 2 : codes.rows) * codes.columns))
    fail("holds ", codes.tensor.bytes.size(), " bytes, which are not the codes of ", codes.rows, " x ", codes.columns);
  const int64_t per_row = codes.group == 0 ? 1 : (codes.columns + codes.group - 1) / codes.group;
  const auto wanted = static_cast<size_t>(codes.rows * per_row);
  if (codes.scales.size() != wanted || (!codes.offsets.empty() && codes.offsets.size() != wanted))
    fail("needs ", wanted, " scales, not ", codes.scales.size());
  if (codes.input && (codes.group != 0 || codes.addends.size() != static_cast<size_t>(codes.rows)))
    fail("static activations need one scale and one addend per row");
  if (codes.input && read_as == ReadAs::exact)
    fail("is statically quantized, which float32 weights cannot express; leave out --dtype float32");
  return std::make_shared<ChannelSource>(std::move(checkpoint), std::move(codes), read_as);
}

std::vector<float> read_finite_floats(const std::shared_ptr<const Checkpoint>& checkpoint, const std::string& name,
                                      int64_t elements) {
  const auto source = make_weight_source(checkpoint, name, ReadAs::exact);
  if (source->rows() * source->columns() != elements)
    throw Error(cat(checkpoint->path(), ": tensor ", quoted(name), ": has ", source->rows() * source->columns(),
                    " elements where ", elements, " are needed"));
  std::vector<float> values(static_cast<size_t>(elements));
  if (elements != 0) source->read_f32(0, source->rows(), values.data());
  for (const float value : values)
    if (!std::isfinite(value))
      throw Error(cat(checkpoint->path(), ": tensor ", quoted(name), ": holds ", value, ", which is not finite"));
  return values;
}

}  // namespace gristmill::weights
