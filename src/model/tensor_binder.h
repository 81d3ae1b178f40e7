#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/program.h"
#include "weights/checkpoint.h"

namespace gristmill::model {

/// Takes a model's tensors out of a checkpoint by name, each checked against the shape that the config asks for.
class TensorBinder {
 public:
  TensorBinder(std::shared_ptr<const weights::Checkpoint> checkpoint, bool exact)
      : checkpoint_(std::move(checkpoint)), exact_(exact) {}

  /// A matrix of [rows, columns]. Throws Error naming the tensor and both shapes.
  std::shared_ptr<const device::WeightSource> matrix(const std::string& name, int64_t rows, int64_t columns);
  std::shared_ptr<const device::WeightSource> vector(const std::string& name, int64_t elements);
  /// Null when there is none of that name.
  std::shared_ptr<const device::WeightSource> optional_vector(const std::string& name, int64_t elements);
  /// Says that a tensor was read elsewhere.
  void use(const std::string& name) { used_.insert(name); }
  /// Throws Error naming a tensor that nobody asked for: a model that has it computes something else.
  void check_all_used() const;

 private:
  std::shared_ptr<const device::WeightSource> take(const std::string& name, const std::vector<int64_t>& shape);

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  bool exact_;
  std::set<std::string> used_;
};

}  // namespace gristmill::model
