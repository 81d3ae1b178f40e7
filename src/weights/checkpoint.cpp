#include "weights/checkpoint.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "weights/block_codes.h"
#include "weights/gguf_blocks.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {
namespace {

using device::CodeRows;
using device::Encoding;
using device::WeightSource;

/// A tensor of a checkpoint, read in place.
class TensorSource final : public WeightSource {
 public:
  TensorSource(std::shared_ptr<const Checkpoint> checkpoint, TensorView tensor, Encoding encoding)
      : WeightSource(tensor.name, tensor.rows(), tensor.columns(), encoding, tensor.bytes.size()),
        checkpoint_(std::move(checkpoint)),
        tensor_(std::move(tensor)),
        row_bytes_(row_bytes(tensor_.type, columns())) {}

  void read_f32(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count; ++i) dequantize(tensor_.type, row(first + i), columns(), out + i * columns());
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    std::memcpy(out, row(first), static_cast<size_t>(count) * row_bytes_);
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    const int64_t groups = columns() / encoding().group;
    for (int64_t i = 0; i < count; ++i)
      read_block_codes(tensor_.type, row(first + i), columns(), out.codes + i * columns(), out.scales + i * groups,
                       out.mins == nullptr ? nullptr : out.mins + i * groups);
  }
  void release() const override { checkpoint_->drop_pages(tensor_.bytes); }
  void release_rows(int64_t first, int64_t count) const override {
    checkpoint_->drop_pages(
        tensor_.bytes.subspan(static_cast<size_t>(first) * row_bytes_, static_cast<size_t>(count) * row_bytes_));
  }

 private:
  const std::byte* row(int64_t index) const { return tensor_.bytes.data() + static_cast<size_t>(index) * row_bytes_; }

  std::shared_ptr<const Checkpoint> checkpoint_;
  TensorView tensor_;
  size_t row_bytes_;
};

/// Another source with its rows in another order.
class PermutedRows final : public WeightSource {
 public:
  PermutedRows(std::shared_ptr<const WeightSource> base, std::vector<int32_t> order)
      : WeightSource(base->name(), base->rows(), base->columns(), base->encoding(), base->file_bytes()),
        base_(std::move(base)),
        order_(std::move(order)) {}

  void read_f32(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count; ++i) base_->read_f32(order_[first + i], 1, out + i * columns());
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    for (int64_t i = 0; i < count; ++i) base_->read_16(order_[first + i], 1, out + i * columns());
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    for (int64_t i = 0; i < count; ++i) base_->read_codes(order_[first + i], 1, out.from(i, columns(), encoding()));
  }
  void release() const override { base_->release(); }

 private:
  std::shared_ptr<const WeightSource> base_;
  std::vector<int32_t> order_;
};

/// A vector with its elements in another order, as float32 (a vector has no blocks worth keeping).
class PermutedVector final : public WeightSource {
 public:
  PermutedVector(std::shared_ptr<const WeightSource> base, std::vector<int32_t> order)
      : WeightSource(base->name(), 1, base->columns(), Encoding{}, base->file_bytes()),
        base_(std::move(base)),
        order_(std::move(order)) {}

  void read_f32(int64_t, int64_t count, float* out) const override {
    if (count == 0) return;
    std::vector<float> values(order_.size());
    base_->read_f32(0, 1, values.data());
    for (size_t i = 0; i < order_.size(); ++i) out[i] = values[static_cast<size_t>(order_[i])];
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t, int64_t, const CodeRows&) const override {}
  void release() const override { base_->release(); }

 private:
  std::shared_ptr<const WeightSource> base_;
  std::vector<int32_t> order_;
};

}  // namespace

std::shared_ptr<const WeightSource> make_weight_source(std::shared_ptr<const Checkpoint> checkpoint,
                                                       std::string_view name, ReadAs read_as) {
  TensorView tensor = checkpoint->tensor(name);
  if (!is_weight_type(tensor.type))
    throw Error(cat(checkpoint->path(), ": tensor ", quoted(name), ": type ", layout_of(tensor.type).name,
                    " holds no weights"));
  const Encoding encoding = read_as == ReadAs::exact ? Encoding{} : encoding_of(tensor.type);
  return std::make_shared<TensorSource>(std::move(checkpoint), std::move(tensor), encoding);
}

std::shared_ptr<const WeightSource> permute_rows(std::shared_ptr<const WeightSource> base, std::vector<int32_t> order) {
  const bool vector = base->rows() == 1;
  const int64_t expected = vector ? base->columns() : base->rows();
  std::vector<bool> seen(order.size());
  bool permutation = static_cast<int64_t>(order.size()) == expected;
  for (size_t i = 0; permutation && i < order.size(); ++i) {
    permutation = order[i] >= 0 && order[i] < expected && !seen[static_cast<size_t>(order[i])];
    if (permutation) seen[static_cast<size_t>(order[i])] = true;
  }
  if (!permutation)
    throw Error(cat(base->name(), ": an order of ", order.size(), " is no permutation of its ", expected,
                    vector ? " elements" : " rows"));
  if (vector) return std::make_shared<PermutedVector>(std::move(base), std::move(order));
  return std::make_shared<PermutedRows>(std::move(base), std::move(order));
}

}  // namespace gristmill::weights
