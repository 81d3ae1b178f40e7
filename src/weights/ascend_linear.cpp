// The formats are msmodelslim's: "ascend" checkpoints (quant_model_description.json).
#include "weights/ascend_linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "weights/channel_source.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {
namespace {

/// What a static input's offset and quant_bias add to the outputs of float weights w = code * deq / scale. From
///   y = (sum of code * x_code + quant_bias) * deq,  x_code ~ x / scale + offset
/// follows y ~ sum of w * x + deq * (quant_bias + offset * sum of code).
class StaticBias final : public device::WeightSource {
 public:
  StaticBias(std::string name, std::shared_ptr<const Checkpoint> checkpoint, const ChannelCodes& codes)
      : WeightSource(std::move(name), 1, codes.rows, device::Encoding{}, 0),
        checkpoint_(std::move(checkpoint)),
        codes_(codes) {}

  void read_f32(int64_t, int64_t count, float* out) const override {
    if (count == 0) return;
    const auto* code = reinterpret_cast<const int8_t*>(codes_.tensor.bytes.data());
    for (int64_t row = 0; row < codes_.rows; ++row) {
      int64_t sum = 0;
      for (int64_t k = 0; k < codes_.columns; ++k) sum += *code++;
      const auto at = static_cast<size_t>(row);
      const double added = codes_.addends[at] + static_cast<double>(codes_.input->offset) * static_cast<double>(sum);
      out[row] = static_cast<float>(added * static_cast<double>(codes_.scales[at]));
    }
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t, int64_t, const device::CodeRows&) const override {}
  void release() const override { checkpoint_->drop_pages(codes_.tensor.bytes); }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  ChannelCodes codes_;
};

class Reader {
 public:
  Reader(const std::shared_ptr<const Checkpoint>& checkpoint, const QuantDescription& description,
         const std::string& base, QuantType type, int64_t rows, int64_t columns)
      : checkpoint_(checkpoint), description_(description), base_(base), type_(type) {
    codes_.name = base + ".weight";
    codes_.tensor = checkpoint->tensor(codes_.name);
    codes_.rows = rows;
    codes_.columns = columns;
    tensors_.push_back(codes_.name);
  }

  AscendLinear read(ReadAs read_as) && {
    if (codes_.tensor.type != StorageType::i8)
      fail(".weight", cat("the description says ", name_of(type_), ", but the tensor is not I8"));
    switch (type_) {
      case QuantType::w8a8:
        read_static();
        break;
      case QuantType::w4a8_dynamic:
        read_int4();
        break;
      default:
        read_int8();
    }
    // What the other half of W8A8_MIX and some kernels of the vendor need, and we do not.
    for (const char* const part : {".scale_bias", ".weight_offset", ".input_scale", ".input_offset", ".deq_scale",
                                   ".quant_bias", ".weight_scale"})
      use(part);
    const bool holds_bias = type_ == QuantType::w8a8;
    if (holds_bias) use(".bias");
    std::shared_ptr<const device::WeightSource> bias;
    if (holds_bias && read_as == ReadAs::exact) {
      bias = std::make_shared<StaticBias>(name(".quant_bias"), checkpoint_, codes_);
      for (float& scale : codes_.scales) scale /= codes_.input->scale;
      codes_.input.reset();
      codes_.addends.clear();
    }
    return {make_channel_source(checkpoint_, std::move(codes_), read_as), std::move(tensors_), holds_bias,
            std::move(bias)};
  }

 private:
  std::string name(const char* part) const { return base_ + part; }
  bool has(const char* part) const { return checkpoint_->contains(name(part)); }
  void use(const char* part) {
    if (has(part) && std::find(tensors_.begin(), tensors_.end(), name(part)) == tensors_.end())
      tensors_.push_back(name(part));
  }
  [[noreturn]] void fail(const char* part, const std::string& what) const {
    throw Error(cat(checkpoint_->path(), ": tensor ", quoted(name(part)), ": ", what));
  }
  void need(const char* part) {
    if (!has(part)) fail(part, cat("is missing; ", quoted(name(".weight")), " is ", name_of(type_)));
    if (const auto type = description_.type_of(name(part)); type && *type != type_)
      fail(part,
           cat("the description says ", name_of(*type), ", but ", name_of(type_), " for ", quoted(name(".weight"))));
    use(part);
  }
  std::vector<float> floats(const char* part, int64_t elements) {
    need(part);
    return read_finite_floats(checkpoint_, name(part), elements);
  }

  void check_shape(int64_t rows) const {
    const std::vector<int64_t>& shape = codes_.tensor.shape;
    if (shape.size() != 2 || shape[0] != rows || shape[1] != codes_.columns)
      fail(".weight", cat("has shape [", shape.empty() ? 0 : shape[0], ", ", shape.size() < 2 ? 0 : shape[1],
                          "], the model's config and ", name_of(type_), " ask for [", rows, ", ", codes_.columns, "]"));
  }

  /// Elements of a scale tensor; decides whether scales are per row or per group.
  int64_t scale_elements(const char* part) {
    need(part);
    const TensorView tensor = checkpoint_->tensor(name(part));
    if (tensor.shape.empty() || tensor.shape[0] != codes_.rows || tensor.shape.size() > 2)
      fail(part, cat("must have ", codes_.rows, " rows, as many as ", quoted(name(".weight"))));
    return codes_.rows * (tensor.shape.size() == 1 ? 1 : tensor.shape[1]);
  }
  void set_group(const char* part, int64_t elements) {
    if (elements == codes_.rows) return;
    const int64_t groups = elements / codes_.rows;
    if (elements % codes_.rows != 0 || groups < 1 || codes_.columns % groups != 0)
      fail(part, cat("has ", elements, " elements, which do not divide into ", codes_.rows, " rows of ", codes_.columns,
                     " columns"));
    codes_.group = static_cast<int>(codes_.columns / groups);
    if (const int said = description_.group_size(); said != 0 && said != codes_.group)
      fail(part, cat("holds scales of ", codes_.group, " columns, the description's group_size is ", said));
  }

  void read_int8() {
    check_shape(codes_.rows);
    const int64_t elements = scale_elements(".weight_scale");
    set_group(".weight_scale", elements);
    codes_.scales = floats(".weight_scale", elements);
    codes_.integers = type_ != QuantType::w8a16;
    if (type_ == QuantType::w8a16) {
      if (has(".weight_offset")) codes_.offsets = floats(".weight_offset", elements);
    } else {
      require_zero_offset(".weight_offset", elements);
    }
  }

  void require_zero_offset(const char* part, int64_t elements) {
    if (!has(part)) return;
    for (const float offset : floats(part, elements))
      if (offset != 0)
        fail(part, cat("holds ", offset, "; ", name_of(type_), " weights with an offset are not supported"));
  }

  void read_int4() {
    // Version 1.0.0 packs two rows into a byte, older ones have one code a byte: the shape tells.
    const std::vector<int64_t>& shape = codes_.tensor.shape;
    const bool bytes = shape.size() == 2 && shape[0] == codes_.rows;
    codes_.storage = bytes ? CodeStorage::int4_bytes : CodeStorage::int4_row_pairs;
    if (!bytes && codes_.rows % 2 != 0)
      fail(".weight", cat("an odd number of rows (", codes_.rows, ") cannot be packed in pairs"));
    check_shape(bytes ? codes_.rows : codes_.rows / 2);
    codes_.scales = floats(".weight_scale", codes_.rows);
    require_zero_offset(".weight_offset", codes_.rows);
    if (has(".weight_offset_second")) need(".weight_scale_second");
    if (!has(".weight_scale_second")) return;
    // w = code * second scale * first scale, where the second ones are shared by groups of columns.
    const int64_t elements = scale_elements(".weight_scale_second");
    set_group(".weight_scale_second", elements);
    std::vector<float> second = floats(".weight_scale_second", elements);
    require_zero_offset(".weight_offset_second", elements);
    const int64_t groups = elements / codes_.rows;
    for (int64_t i = 0; i < elements; ++i)
      second[static_cast<size_t>(i)] *= codes_.scales[static_cast<size_t>(i / groups)];
    codes_.scales = std::move(second);
  }

  void read_static() {
    check_shape(codes_.rows);
    const device::StaticInput input{floats(".input_scale", 1)[0], floats(".input_offset", 1)[0]};
    if (!(input.scale > 0)) fail(".input_scale", cat(input.scale, " is not a positive number"));
    if (input.offset != std::nearbyint(input.offset) || input.offset < -128 || input.offset > 127)
      fail(".input_offset", cat(input.offset, " is not a whole number from -128 to 127"));
    codes_.input = input;
    codes_.scales = deq_scale();
    need(".quant_bias");
    const TensorView bias = checkpoint_->tensor(name(".quant_bias"));
    if (bias.type != StorageType::i32 || bias.rows() != 1 || bias.columns() != codes_.rows)
      fail(".quant_bias", cat("must be ", codes_.rows, " numbers of I32"));
    codes_.addends.resize(static_cast<size_t>(codes_.rows));
    std::memcpy(codes_.addends.data(), bias.bytes.data(), bias.bytes.size());
  }

  /// F32, or for float16 models I64 whose lower half is the pattern of a float32.
  std::vector<float> deq_scale() {
    need(".deq_scale");
    const TensorView tensor = checkpoint_->tensor(name(".deq_scale"));
    if (tensor.type != StorageType::i64) return floats(".deq_scale", codes_.rows);
    if (tensor.rows() != 1 || tensor.columns() != codes_.rows)
      fail(".deq_scale", cat("must have ", codes_.rows, " elements"));
    std::vector<float> scales;
    for (int64_t i = 0; i < codes_.rows; ++i) {
      uint64_t bits = 0;
      std::memcpy(&bits, tensor.bytes.data() + i * 8, sizeof bits);
      scales.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      if (!std::isfinite(scales.back())) fail(".deq_scale", cat("holds ", scales.back(), ", which is not finite"));
    }
    return scales;
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  const QuantDescription& description_;
  std::string base_;
  QuantType type_;
  ChannelCodes codes_;
  std::vector<std::string> tensors_;
};

}  // namespace

AscendLinear make_ascend_linear(const std::shared_ptr<const Checkpoint>& checkpoint,
                                const QuantDescription& description, const std::string& base, QuantType type,
                                int64_t rows, int64_t columns, ReadAs read_as) {
  return Reader(checkpoint, description, base, type, rows, columns).read(read_as);
}

}  // namespace gristmill::weights
