#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/program.h"
#include "model/hf_config.h"
#include "weights/checkpoint.h"
#include "weights/quant_description.h"
#include "weights/quantized_source.h"

namespace gristmill::model {

/// Takes a model's tensors out of a checkpoint by name, each checked against the shape that the config asks for. One
/// that is missing is remembered, and a stand-in given, so that check_complete() can name all of them at once.
/// Quantized tensors are read with the tensors that belong to them, by the folder's description or config.
class TensorBinder {
 public:
  TensorBinder(std::shared_ptr<const weights::Checkpoint> checkpoint, bool exact)
      : checkpoint_(std::move(checkpoint)), exact_(exact) {}

  /// No checkpoint: every tensor that is asked for is made up. Matrices of layers are of class `cls`, except those that
  /// no quantizer touches (routers, gates of one output per head, convolutions); they and the vocabulary's are bf16
  /// unless `cls` is f32.
  static TensorBinder dummy(device::ComputeClass cls);

  void set_quantization(const HfQuantization& quantization) { quantization_ = quantization; }
  /// Makes it an ascend checkpoint: each tensor is what the description says.
  void set_description(std::shared_ptr<const weights::QuantDescription> description) {
    description_ = std::move(description);
  }
  /// Float weights are quantized as they are read, with the bits that `bits` gives for their name; with `blocks_too`
  /// also the numbers of block formats (GGUF).
  void quantize_floats(std::function<weights::WeightBits(std::string_view)> bits, bool blocks_too = false) {
    quantized_bits_ = std::move(bits);
    quantizes_blocks_ = blocks_too;
    errors_ = std::make_shared<weights::QuantizationErrors>();
  }
  bool has(const std::string& name) const { return checkpoint_ != nullptr && checkpoint_->contains(name); }

  /// A matrix of [rows, columns]. Throws Error naming the tensor and both shapes.
  std::shared_ptr<const device::WeightSource> matrix(const std::string& name, int64_t rows, int64_t columns);
  std::shared_ptr<const device::WeightSource> vector(const std::string& name, int64_t elements);
  /// A tensor of any shape, as a matrix of its last dimension's columns.
  std::shared_ptr<const device::WeightSource> tensor(const std::string& name, const std::vector<int64_t>& shape) {
    return take(name, shape);
  }
  /// Null when there is none of that name.
  std::shared_ptr<const device::WeightSource> optional_vector(const std::string& name, int64_t elements);
  /// The bias of the matrix X.weight: X.bias where the model has one (`is_stored`). Statically quantized matrices hold
  /// it already, so that there is none to add; read exactly they have one of their own, which must be asked for.
  std::shared_ptr<const device::WeightSource> bias(const std::string& base, int64_t elements, bool is_stored);
  /// Scales and offsets of an int8 KV cache (C8) for the attention whose tensors are named `self`k_proj and so on, each
  /// of `channels` elements; none where the checkpoint has none. Throws Error naming a tensor that is missing or does
  /// not fit.
  std::optional<device::CacheScales> cache_scales(const std::string& self, int64_t channels);
  /// Says that a tensor was read elsewhere.
  void use(const std::string& name) { used_.insert(name); }
  /// Says that all tensors whose name starts so are of no use here; `what` they are goes to the log.
  void skip(const std::string& prefix, const char* what);
  /// Throws Error naming the tensors that are missing, and those that nobody asked for: a model that has them computes
  /// something else; also when floats were to be quantized and there were none.
  void check_complete() const;

 private:
  std::shared_ptr<const device::WeightSource> take(const std::string& name, const std::vector<int64_t>& shape);
  std::shared_ptr<const device::WeightSource> make_up(const std::string& name, const std::vector<int64_t>& shape) const;

  std::shared_ptr<const device::WeightSource> read(const std::string& name, const std::vector<int64_t>& shape);
  std::shared_ptr<const device::WeightSource> read_described(const std::string& name,
                                                             const std::vector<int64_t>& shape);
  std::vector<float> cache_numbers(const std::string& name, int64_t channels);
  std::shared_ptr<const device::WeightSource> read_int8_rows(const std::string& name);
  void check_shape(const std::string& name, const std::vector<int64_t>& shape) const;

  std::shared_ptr<const weights::Checkpoint> checkpoint_;  ///< null: dummy
  bool exact_;
  device::ComputeClass dummy_class_ = device::ComputeClass::bf16;
  HfQuantization quantization_;
  std::shared_ptr<const weights::QuantDescription> description_;
  std::function<weights::WeightBits(std::string_view)> quantized_bits_;
  std::shared_ptr<weights::QuantizationErrors> errors_;
  bool quantizes_blocks_ = false;
  bool any_quantized_ = false;
  std::set<std::string> used_;
  /// X of the matrices that hold their bias, with what is to be added nonetheless until that has been asked for.
  std::map<std::string, std::shared_ptr<const device::WeightSource>> with_bias_;
  std::vector<std::string> missing_;
};

}  // namespace gristmill::model
