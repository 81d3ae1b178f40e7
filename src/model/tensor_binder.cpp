#include "model/tensor_binder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "weights/ascend_linear.h"
#include "weights/channel_source.h"
#include "weights/dummy_weights.h"
#include "weights/mapped_file.h"
#include "weights/weight_views.h"

namespace gristmill::model {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += cat(text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

/// A few of the names, and how many more there are.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += cat(i == 0 ? "" : ", ", weights::quoted(names[i]));
  if (names.size() > kShown) text += cat(" and ", names.size() - kShown, " more");
  return text;
}

int64_t rows_of(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

/// Formats that are not read, by the tensors that only they have.
const char* foreign_format(const std::string& tensor) {
  for (const char* const ending : {".qweight", ".qzeros", ".g_idx"})
    if (tensor.ends_with(ending)) return "GPTQ or AWQ";
  if (tensor.ends_with(".weight_packed")) return "packed int4, MXFP4 or NVFP4";
  for (const char* const ending : {"_blocks", ".weight_global_scale", ".weight_scale_2"})
    if (tensor.ends_with(ending)) return "MXFP4 or NVFP4";
  for (const char* const ending : {".heads_rotation", ".kronecker_rotation_m", ".left_trans", ".mul_scale"})
    if (tensor.ends_with(ending)) return "a transform applied while the model runs";
  return nullptr;
}

/// In the place of a missing tensor until check_complete() refuses the model.
class MissingTensor final : public device::WeightSource {
 public:
  MissingTensor(const std::string& name, int64_t rows, int64_t columns)
      : WeightSource(name, rows, columns, device::Encoding{}, 0) {}
  void read_f32(int64_t, int64_t count, float* out) const override { std::fill_n(out, count * columns(), 0.0f); }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t, int64_t, const device::CodeRows&) const override {}
};

}  // namespace

TensorBinder TensorBinder::dummy(device::ComputeClass cls) {
  TensorBinder binder(nullptr, cls == device::ComputeClass::f32);
  binder.dummy_class_ = cls;
  return binder;
}

std::shared_ptr<const device::WeightSource> TensorBinder::make_up(const std::string& name,
                                                                  const std::vector<int64_t>& shape) const {
  constexpr const char* kNeverCoded[] = {"embed_tokens", "lm_head",   "gate.weight", "shared_expert_gate",
                                         "in_proj_a",    "in_proj_b", "conv1d"};
  const bool small = shape.size() < 2 || std::any_of(
                                             std::begin(kNeverCoded), std::end(kNeverCoded),
                                             [&](const char* part) { return name.find(part) != std::string::npos; });
  device::ComputeClass cls = exact_ ? device::ComputeClass::f32 : small ? device::ComputeClass::bf16 : dummy_class_;
  // Numbers that nobody chose are made up as codes at once: there is nothing to lose by quantizing.
  const weights::WeightBits bits = quantized_bits_ ? quantized_bits_(name) : weights::WeightBits::as_stored;
  if (bits == weights::WeightBits::int8) cls = device::ComputeClass::i8_channel;
  if (bits == weights::WeightBits::int4) cls = device::ComputeClass::i4_channel;
  return weights::make_dummy_source(name, rows_of(shape), shape.back(), cls);
}

std::shared_ptr<const device::WeightSource> TensorBinder::take(const std::string& name,
                                                               const std::vector<int64_t>& shape) {
  if (checkpoint_ != nullptr && !checkpoint_->contains(name)) {
    missing_.push_back(name);
    // A config that asks for millions of tensors must not cost their memory before it is refused.
    constexpr size_t kMostMissing = 10000;
    if (missing_.size() > kMostMissing)
      throw Error(cat(checkpoint_->path(), ": tensors ", listed(missing_), ": missing"));
    return std::make_shared<MissingTensor>(name, rows_of(shape), shape.back());
  }
  used_.insert(name);
  if (checkpoint_ == nullptr) return make_up(name, shape);
  auto source = read(name, shape);
  const device::ComputeClass cls = source->encoding().cls;
  const bool is_float = cls == device::ComputeClass::f32 || cls == device::ComputeClass::f16 ||
                        cls == device::ComputeClass::bf16 || cls == device::ComputeClass::f8_float;
  const bool is_blocks = cls == device::ComputeClass::i4_group || cls == device::ComputeClass::i8_group;
  const bool may_be = is_float || (is_blocks && quantizes_blocks_);
  const weights::WeightBits bits = may_be && quantized_bits_ ? quantized_bits_(name) : weights::WeightBits::as_stored;
  if (bits == weights::WeightBits::as_stored) return source;
  any_quantized_ = true;
  return weights::quantize_source(std::move(source), bits, errors_);
}

void TensorBinder::check_shape(const std::string& name, const std::vector<int64_t>& shape) const {
  const TensorView tensor = checkpoint_->tensor(name);
  if (tensor.shape != shape)
    throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(name), ": has shape ", shape_text(tensor.shape),
                    ", the model's config asks for ", shape_text(shape)));
}

std::shared_ptr<const device::WeightSource> TensorBinder::read(const std::string& name,
                                                               const std::vector<int64_t>& shape) {
  if (description_ != nullptr) return read_described(name, shape);
  const weights::ReadAs read_as = exact_ ? weights::ReadAs::exact : weights::ReadAs::compact;
  const TensorView tensor = checkpoint_->tensor(name);
  const std::string scale = name + "_scale", block_scale = name + "_scale_inv";
  const std::string module = name.substr(0, name.rfind('.'));
  std::shared_ptr<const device::WeightSource> source;
  if (checkpoint_->contains(block_scale)) {
    if (quantization_.kind == HfQuantization::Kind::fp8_rows)
      throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(block_scale),
                      ": holds scales per block, but config.json has no quantization_config.weight_block_size"));
    source = weights::make_block_fp8_source(checkpoint_, name, block_scale, quantization_.block_rows,
                                            quantization_.block_columns, read_as);
    used_.insert(block_scale);
  } else if (quantization_.kind == HfQuantization::Kind::fp8_rows && tensor.type == StorageType::fp8_e4m3 &&
             checkpoint_->contains(scale)) {
    // One scale for all rows or one for each is a block as large as that.
    const TensorView scales = checkpoint_->tensor(scale);
    const int64_t rows = scales.rows() * scales.columns() == 1 ? tensor.rows() : 1;
    source = weights::make_block_fp8_source(checkpoint_, name, scale, rows, tensor.columns(), read_as);
    used_.insert(scale);
    // Activations stay float, and the cache has scales of its own.
    for (const char* const part : {".input_scale", ".k_scale", ".v_scale"}) used_.insert(module + part);
  } else if (quantization_.kind == HfQuantization::Kind::int8_dynamic && tensor.type == StorageType::i8) {
    check_shape(name, shape);
    source = read_int8_rows(name);
  } else {
    source = weights::make_weight_source(checkpoint_, name, read_as);
  }
  check_shape(name, shape);
  return source;
}

std::shared_ptr<const device::WeightSource> TensorBinder::read_int8_rows(const std::string& name) {
  const TensorView tensor = checkpoint_->tensor(name);
  const std::string scale = name + "_scale";
  if (!checkpoint_->contains(scale))
    throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(scale), ": is missing; ", weights::quoted(name),
                    " is int8"));
  const TensorView scales = checkpoint_->tensor(scale);
  const bool one = scales.rows() * scales.columns() == 1;
  weights::ChannelCodes codes;
  codes.name = name;
  codes.tensor = tensor;
  codes.rows = tensor.rows();
  codes.columns = tensor.columns();
  codes.scales = weights::read_finite_floats(checkpoint_, scale, one ? 1 : tensor.rows());
  if (one) codes.scales.resize(static_cast<size_t>(tensor.rows()), codes.scales[0]);
  used_.insert(scale);
  return weights::make_channel_source(checkpoint_, std::move(codes),
                                      exact_ ? weights::ReadAs::exact : weights::ReadAs::compact);
}

std::vector<float> TensorBinder::cache_numbers(const std::string& name, int64_t channels) {
  used_.insert(name);
  return weights::read_finite_floats(checkpoint_, name, channels);
}

std::optional<device::CacheScales> TensorBinder::cache_scales(const std::string& self, int64_t channels) {
  if (description_ == nullptr) return std::nullopt;
  device::CacheScales scales;
  const struct {
    const char* projection;
    std::vector<float>*scale, *offset;
  } halves[] = {{"k_proj", &scales.k_scale, &scales.k_offset}, {"v_proj", &scales.v_scale, &scales.v_offset}};
  const bool any = std::any_of(std::begin(halves), std::end(halves), [&](const auto& half) {
    return has(self + half.projection + ".kv_cache_scale") || has(self + half.projection + ".kv_cache_offset");
  });
  if (!any && !description_->has_cache_scales()) return std::nullopt;
  for (const auto& half : halves) {
    const std::string scale = self + half.projection + ".kv_cache_scale";
    const std::string offset = self + half.projection + ".kv_cache_offset";
    if (!has(scale))
      throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(scale),
                      ": is missing; the checkpoint's KV cache is C8 (int8 with scales of its own)"));
    *half.scale = cache_numbers(scale, channels);
    for (const float value : *half.scale)
      if (!(value > 0))
        throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(scale), ": holds ", value,
                        ", scales of a KV cache must be positive"));
    *half.offset = has(offset) ? cache_numbers(offset, channels) : std::vector<float>(half.scale->size(), 0.0f);
  }
  return scales;
}

std::shared_ptr<const device::WeightSource> TensorBinder::read_described(const std::string& name,
                                                                         const std::vector<int64_t>& shape) {
  const weights::ReadAs read_as = exact_ ? weights::ReadAs::exact : weights::ReadAs::compact;
  const TensorView tensor = checkpoint_->tensor(name);
  const std::optional<weights::QuantType> type = description_->type_of(name);
  const bool is_integer = tensor.type == StorageType::i8;
  if (!type && is_integer)
    throw Error(cat(description_->path(), ": tensor ", weights::quoted(name),
                    ": is int8 but has no type there; an entry such as W8A8_DYNAMIC is needed"));
  if (!type || *type == weights::QuantType::plain) {
    if (is_integer)
      throw Error(
          cat(checkpoint_->path(), ": tensor ", weights::quoted(name), ": is int8, but the description says FLOAT"));
    check_shape(name, shape);
    return weights::make_weight_source(checkpoint_, name, read_as);
  }
  constexpr std::string_view kEnding = ".weight";
  if (shape.size() != 2 || !name.ends_with(kEnding))
    throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(name), ": only matrices can be ",
                    weights::name_of(*type)));
  const std::string base = name.substr(0, name.size() - kEnding.size());
  weights::AscendLinear linear =
      weights::make_ascend_linear(checkpoint_, *description_, base, *type, shape[0], shape[1], read_as);
  used_.insert(linear.tensors.begin(), linear.tensors.end());
  if (linear.holds_bias) with_bias_[base] = linear.bias;
  return linear.weight;
}

std::shared_ptr<const device::WeightSource> TensorBinder::bias(const std::string& base, int64_t elements,
                                                               bool is_stored) {
  const auto held = with_bias_.find(base);
  if (held != with_bias_.end()) return std::exchange(held->second, nullptr);
  return is_stored ? vector(base + ".bias", elements) : nullptr;
}

std::shared_ptr<const device::WeightSource> TensorBinder::matrix(const std::string& name, int64_t rows,
                                                                 int64_t columns) {
  return take(name, {rows, columns});
}

std::shared_ptr<const device::WeightSource> TensorBinder::vector(const std::string& name, int64_t elements) {
  return take(name, {elements});
}

std::shared_ptr<const device::WeightSource> TensorBinder::optional_vector(const std::string& name, int64_t elements) {
  return has(name) ? vector(name, elements) : nullptr;
}

void TensorBinder::skip(const std::string& prefix, const char* what) {
  if (checkpoint_ == nullptr) return;
  size_t count = 0;
  for (const std::string& name : checkpoint_->names())
    if (name.starts_with(prefix)) count += used_.insert(name).second ? 1 : 0;
  if (count != 0) LOG_DEBUG(checkpoint_->path(), ": skipping ", count, " tensors ", prefix, "* (", what, ")");
}

void TensorBinder::check_complete() const {
  if (checkpoint_ == nullptr) return;
  for (const auto& [base, bias] : with_bias_)
    if (bias != nullptr)
      throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(base + ".weight"),
                      ": is statically quantized, and in float32 it has a bias that experts and heads cannot take; "
                      "leave out --dtype float32"));
  std::vector<std::string> surplus;
  for (const std::string& name : checkpoint_->names())
    if (!used_.contains(name)) surplus.push_back(name);
  if (missing_.empty() && surplus.empty()) {
    if (quantized_bits_ && !any_quantized_)
      throw Error(cat(checkpoint_->path(), ": none of its linears is a float that could be quantized at load"));
    return;
  }
  for (const std::string& name : surplus)
    if (const char* const format = foreign_format(name))
      throw Error(
          cat(checkpoint_->path(), ": tensor ", weights::quoted(name), ": ", format,
              " is not supported (supported: float, FP8 in blocks, per tensor or per channel, compressed-tensors "
              "int8, ascend W8A8, W8A8_DYNAMIC, W8A8_MIX, W4A8_DYNAMIC, W8A16)"));
  std::string what;
  if (!missing_.empty()) what += cat(missing_.size() > 1 ? "tensors " : "tensor ", listed(missing_), ": missing");
  if (!surplus.empty())
    what += cat(what.empty() ? "" : "; ", surplus.size() > 1 ? "tensors " : "tensor ", listed(surplus),
                ": not known to this architecture; the model would compute something else without them");
  throw Error(cat(checkpoint_->path(), ": ", what));
}

}  // namespace gristmill::model
