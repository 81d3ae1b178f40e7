#include "weights/weight_views.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/float8.h"
#include "base/half.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {
namespace {

using device::CodeRows;
using device::ComputeClass;
using device::Encoding;
using device::WeightSource;

class SelectedRows final : public WeightSource {
 public:
  SelectedRows(std::string name, std::shared_ptr<const WeightSource> base, std::vector<int32_t> rows)
      : WeightSource(std::move(name), static_cast<int64_t>(rows.size()), base->columns(), base->encoding(),
                     base->file_bytes() / static_cast<size_t>(base->rows()) * rows.size()),
        base_(std::move(base)),
        rows_(std::move(rows)) {}

  void read_f32(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count; ++i) base_->read_f32(at(first + i), 1, out + i * columns());
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    for (int64_t i = 0; i < count; ++i) base_->read_16(at(first + i), 1, out + i * columns());
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    for (int64_t i = 0; i < count; ++i) base_->read_codes(at(first + i), 1, out.from(i, columns(), encoding()));
  }
  void release() const override { base_->release(); }

 private:
  int32_t at(int64_t row) const { return rows_[static_cast<size_t>(row)]; }
  std::shared_ptr<const WeightSource> base_;
  std::vector<int32_t> rows_;
};

class RecodedRows final : public WeightSource {
 public:
  RecodedRows(std::shared_ptr<const WeightSource> base, const Encoding& encoding)
      : WeightSource(base->name(), base->rows(), base->columns(), encoding, base->file_bytes()),
        base_(std::move(base)) {}

  void read_f32(int64_t first, int64_t count, float* out) const override { base_->read_f32(first, count, out); }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    const int64_t own = device::scales_of_row(encoding(), columns());
    const int64_t stored = device::scales_of_row(base_->encoding(), columns());
    std::vector<float> scales(static_cast<size_t>(count * stored));
    base_->read_codes(first, count, {out.codes, nullptr, nullptr, scales.data()});
    for (int64_t i = 0; i < count; ++i)
      for (int64_t g = 0; g < own; ++g)
        out.channel_scales[i * own + g] = scales[static_cast<size_t>(i * stored + g * stored / own)];
  }
  void release() const override { base_->release(); }
  void release_rows(int64_t first, int64_t count) const override { base_->release_rows(first, count); }

 private:
  std::shared_ptr<const WeightSource> base_;
};

class ConcatenatedRows final : public WeightSource {
 public:
  ConcatenatedRows(std::string name, int64_t rows, Encoding encoding, size_t file_bytes,
                   std::vector<std::shared_ptr<const WeightSource>> parts)
      : WeightSource(std::move(name), rows, parts.front()->columns(), encoding, file_bytes), parts_(std::move(parts)) {
    int64_t end = 0;
    for (const auto& part : parts_) ends_.push_back(end += part->rows());
  }

  void read_f32(int64_t first, int64_t count, float* out) const override {
    over_parts(first, count, [&](const WeightSource& part, int64_t from, int64_t rows, int64_t done) {
      part.read_f32(from, rows, out + done * columns());
    });
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    over_parts(first, count, [&](const WeightSource& part, int64_t from, int64_t rows, int64_t done) {
      part.read_16(from, rows, out + done * columns());
    });
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    over_parts(first, count, [&](const WeightSource& part, int64_t from, int64_t rows, int64_t done) {
      part.read_codes(from, rows, out.from(done, columns(), encoding()));
    });
  }
  void release() const override {
    for (const auto& part : parts_) part->release();
  }
  void release_rows(int64_t first, int64_t count) const override {
    over_parts(first, count,
               [](const WeightSource& part, int64_t from, int64_t rows, int64_t) { part.release_rows(from, rows); });
  }

 private:
  template <class Read>
  void over_parts(int64_t first, int64_t count, Read read) const {
    auto part = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (int64_t done = 0; done < count; ++part) {
      const int64_t begin = ends_[part] - parts_[part]->rows();
      const int64_t from = first + done - begin;
      const int64_t rows = std::min(count - done, parts_[part]->rows() - from);
      read(*parts_[part], from, rows, done);
      done += rows;
    }
  }
  std::vector<std::shared_ptr<const WeightSource>> parts_;
  std::vector<int64_t> ends_;  ///< row behind the last of each part
};

/// Values made anew in float32; there are no 16-bit patterns or codes behind them.
class ComputedSource : public WeightSource {
 public:
  using WeightSource::WeightSource;
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t, int64_t, const CodeRows&) const override {}
};

class SelectedElements final : public ComputedSource {
 public:
  SelectedElements(std::shared_ptr<const WeightSource> base, std::vector<int32_t> elements)
      : ComputedSource(base->name(), 1, static_cast<int64_t>(elements.size()), Encoding{}, 0),
        base_(std::move(base)),
        elements_(std::move(elements)) {}
  void read_f32(int64_t, int64_t count, float* out) const override {
    if (count == 0) return;
    std::vector<float> values(static_cast<size_t>(base_->columns()));
    base_->read_f32(0, 1, values.data());
    for (const int32_t element : elements_) *out++ = values[static_cast<size_t>(element)];
  }
  void release() const override { base_->release(); }

 private:
  std::shared_ptr<const WeightSource> base_;
  std::vector<int32_t> elements_;
};

class OnePlus final : public ComputedSource {
 public:
  explicit OnePlus(std::shared_ptr<const WeightSource> base)
      : ComputedSource(base->name(), base->rows(), base->columns(), Encoding{}, base->file_bytes()),
        base_(std::move(base)) {}
  void read_f32(int64_t first, int64_t count, float* out) const override {
    base_->read_f32(first, count, out);
    for (int64_t i = 0; i < count * columns(); ++i) out[i] += 1.0f;
  }
  void release() const override { base_->release(); }

 private:
  std::shared_ptr<const WeightSource> base_;
};

class BlockFp8Source final : public WeightSource {
 public:
  BlockFp8Source(std::shared_ptr<const Checkpoint> checkpoint, const TensorView& tensor, std::vector<float> scales,
                 int64_t block_rows, int64_t block_columns, bool exact)
      : WeightSource(tensor.name, tensor.rows(), tensor.columns(),
                     exact ? Encoding{} : Encoding{ComputeClass::f8_float, group_of(block_columns, tensor.columns())},
                     tensor.bytes.size()),
        checkpoint_(std::move(checkpoint)),
        tensor_(tensor),
        scales_(std::move(scales)),
        block_rows_(block_rows),
        block_columns_(block_columns) {}

  void read_f32(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t k = 0; k < columns(); ++k)
        *out++ = fp8_e4m3_to_f32(codes_of(first + i)[k]) * scales_of(first + i)[k / block_columns_];
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    const int64_t groups = device::scales_of_row(encoding(), columns());
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const codes = codes_of(first + i);
      // Kernels take the code for NaN for a number.
      if (std::any_of(codes, codes + columns(), [](uint8_t code) { return (code & 0x7f) == 0x7f; }))
        throw Error(cat(checkpoint_->path(), ": tensor ", quoted(name()), ": row ", first + i,
                        " holds a weight that is not finite"));
      std::copy_n(codes, columns(), out.codes + i * columns());
      std::copy_n(scales_of(first + i), groups, out.channel_scales + i * groups);
    }
  }
  void release() const override { checkpoint_->drop_pages(tensor_.bytes); }
  void release_rows(int64_t first, int64_t count) const override {
    checkpoint_->drop_pages(
        tensor_.bytes.subspan(static_cast<size_t>(first * columns()), static_cast<size_t>(count * columns())));
  }

 private:
  /// Columns of a scale, 0 for all.
  static int group_of(int64_t block_columns, int64_t columns) {
    return block_columns >= columns ? 0 : static_cast<int>(block_columns);
  }
  const uint8_t* codes_of(int64_t row) const {
    return reinterpret_cast<const uint8_t*>(tensor_.bytes.data()) + row * columns();
  }
  const float* scales_of(int64_t row) const {
    const int64_t scale_columns = (columns() + block_columns_ - 1) / block_columns_;
    return scales_.data() + row / block_rows_ * scale_columns;
  }
  std::shared_ptr<const Checkpoint> checkpoint_;
  TensorView tensor_;
  std::vector<float> scales_;
  int64_t block_rows_, block_columns_;
};

}  // namespace

std::shared_ptr<const WeightSource> select_rows(std::string name, std::shared_ptr<const WeightSource> base,
                                                std::vector<int32_t> rows) {
  if (rows.empty()) throw Error(cat(base->name(), ": no rows of it are wanted"));
  for (const int32_t row : rows)
    if (row < 0 || row >= base->rows()) throw Error(cat(base->name(), ": there is no row ", row, " of ", base->rows()));
  return std::make_shared<SelectedRows>(std::move(name), std::move(base), std::move(rows));
}

std::shared_ptr<const WeightSource> select_elements(std::shared_ptr<const WeightSource> base,
                                                    std::vector<int32_t> elements) {
  for (const int32_t element : elements)
    if (base->rows() != 1 || element < 0 || element >= base->columns())
      throw Error(cat(base->name(), ": there is no element ", element, " of ", base->columns()));
  return std::make_shared<SelectedElements>(std::move(base), std::move(elements));
}

std::shared_ptr<const WeightSource> recode(std::shared_ptr<const WeightSource> base, const Encoding& encoding) {
  const Encoding& from = base->encoding();
  if (from == encoding) return base;
  const int64_t columns = base->columns(), own = device::scales_of_row(encoding, columns);
  const bool widens = from.cls == encoding.cls || encoding.cls == ComputeClass::i8_channel;
  const bool refines = own % device::scales_of_row(from, columns) == 0 && (own == 1 || columns % own == 0);
  if (!device::is_channel_class(from.cls) || !device::is_channel_class(encoding.cls) || from.input || encoding.input ||
      !widens || !refines)
    throw Error(cat(base->name(), ": ", name_of(from.cls), " in groups of ", from.group, " cannot become ",
                    name_of(encoding.cls), " in groups of ", encoding.group));
  return std::make_shared<RecodedRows>(std::move(base), encoding);
}

std::shared_ptr<const WeightSource> concatenate_rows(std::string name,
                                                     std::vector<std::shared_ptr<const WeightSource>> parts) {
  if (parts.empty()) throw Error(cat(name, ": it has no parts"));
  int64_t rows = 0;
  size_t bytes = 0;
  bool alike = true;
  for (const auto& part : parts) {
    if (part->columns() != parts.front()->columns())
      throw Error(cat(part->name(), ": it has ", part->columns(), " columns where ", parts.front()->name(), " has ",
                      parts.front()->columns()));
    rows += part->rows();
    bytes += part->file_bytes();
    alike = alike && part->encoding() == parts.front()->encoding();
  }
  const Encoding encoding = alike ? parts.front()->encoding() : Encoding{};
  return std::make_shared<ConcatenatedRows>(std::move(name), rows, encoding, bytes, std::move(parts));
}

std::shared_ptr<const WeightSource> add_one(std::shared_ptr<const WeightSource> base) {
  return std::make_shared<OnePlus>(std::move(base));
}

std::shared_ptr<const WeightSource> make_block_fp8_source(std::shared_ptr<const Checkpoint> checkpoint,
                                                          const std::string& name, const std::string& scale_name,
                                                          int64_t block_rows, int64_t block_columns, ReadAs read_as) {
  const TensorView tensor = checkpoint->tensor(name);
  const auto scale = make_weight_source(checkpoint, scale_name, ReadAs::exact);
  if (tensor.type != StorageType::fp8_e4m3)
    throw Error(cat(checkpoint->path(), ": tensor ", quoted(name), ": has scales in ", quoted(scale_name),
                    " but is not FP8 (F8_E4M3)"));
  const int64_t rows = (tensor.rows() + block_rows - 1) / block_rows;
  const int64_t columns = (tensor.columns() + block_columns - 1) / block_columns;
  if (scale->rows() != rows || scale->columns() != columns)
    throw Error(cat(checkpoint->path(), ": tensor ", quoted(scale_name), ": has shape [", scale->rows(), ", ",
                    scale->columns(), "], blocks of ", block_rows, " x ", block_columns, " ask for [", rows, ", ",
                    columns, "]"));
  std::vector<float> scales(static_cast<size_t>(rows * columns));
  scale->read_f32(0, rows, scales.data());
  return std::make_shared<BlockFp8Source>(std::move(checkpoint), tensor, std::move(scales), block_rows, block_columns,
                                          read_as == ReadAs::exact);
}

}  // namespace gristmill::weights
