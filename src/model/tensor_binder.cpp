#include "model/tensor_binder.h"

#include "base/error.h"
#include "weights/mapped_file.h"

namespace gristmill::model {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += cat(text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

}  // namespace

std::shared_ptr<const device::WeightSource> TensorBinder::take(const std::string& name,
                                                               const std::vector<int64_t>& shape) {
  std::shared_ptr<const device::WeightSource> source =
      weights::make_weight_source(checkpoint_, name, exact_ ? weights::ReadAs::exact : weights::ReadAs::compact);
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

void TensorBinder::check_all_used() const {
  for (const std::string& name : checkpoint_->names())
    if (!used_.contains(name))
      throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(name),
                      ": is not known to this architecture; the model would compute something else without it"));
}

}  // namespace gristmill::model
