#include "model/tensor_binder.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
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

std::shared_ptr<const device::WeightSource> TensorBinder::take(const std::string& name,
                                                               const std::vector<int64_t>& shape) {
  if (!checkpoint_->contains(name)) {
    missing_.push_back(name);
    // A config that asks for millions of tensors must not cost their memory before it is refused.
    constexpr size_t kMostMissing = 10000;
    if (missing_.size() > kMostMissing)
      throw Error(cat(checkpoint_->path(), ": tensors ", listed(missing_), ": missing"));
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    return std::make_shared<MissingTensor>(name, rows, shape.back());
  }
  const weights::ReadAs read_as = exact_ ? weights::ReadAs::exact : weights::ReadAs::compact;
  const std::string scale = name + "_scale_inv";
  std::shared_ptr<const device::WeightSource> source;
  if (checkpoint_->contains(scale)) {
    source = weights::make_block_fp8_source(checkpoint_, name, scale, fp8_rows_, fp8_columns_, read_as);
    used_.insert(scale);
  } else {
    source = weights::make_weight_source(checkpoint_, name, read_as);
  }
  const TensorView tensor = checkpoint_->tensor(name);
  if (tensor.shape != shape)
    throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(name), ": has shape ", shape_text(tensor.shape),
                    ", the model's config asks for ", shape_text(shape)));
  used_.insert(name);
  return source;
}

std::shared_ptr<const device::WeightSource> TensorBinder::matrix(const std::string& name, int64_t rows,
                                                                 int64_t columns) {
  return take(name, {rows, columns});
}

std::shared_ptr<const device::WeightSource> TensorBinder::vector(const std::string& name, int64_t elements) {
  return take(name, {elements});
}

std::shared_ptr<const device::WeightSource> TensorBinder::optional_vector(const std::string& name, int64_t elements) {
  return checkpoint_->contains(name) ? vector(name, elements) : nullptr;
}

void TensorBinder::skip(const std::string& prefix, const char* what) {
  size_t count = 0;
  for (const std::string& name : checkpoint_->names())
    if (name.starts_with(prefix)) count += used_.insert(name).second ? 1 : 0;
  if (count != 0) LOG_DEBUG(checkpoint_->path(), ": skipping ", count, " tensors ", prefix, "* (", what, ")");
}

void TensorBinder::check_complete() const {
  std::vector<std::string> surplus;
  for (const std::string& name : checkpoint_->names())
    if (!used_.contains(name)) surplus.push_back(name);
  if (missing_.empty() && surplus.empty()) return;
  std::string what;
  if (!missing_.empty()) what += cat(missing_.size() > 1 ? "tensors " : "tensor ", listed(missing_), ": missing");
  if (!surplus.empty())
    what += cat(what.empty() ? "" : "; ", surplus.size() > 1 ? "tensors " : "tensor ", listed(surplus),
                ": not known to this architecture; the model would compute something else without them");
  throw Error(cat(checkpoint_->path(), ": ", what));
}

}  // namespace gristmill::model
