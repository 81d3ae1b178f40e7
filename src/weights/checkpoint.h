#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "device/weight_source.h"

namespace gristmill::weights {

/// Lazily mapped named tensors of any container. Thread safe after opening.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  virtual std::string path() const = 0;
  virtual bool contains(std::string_view name) const = 0;
  /// Throws Error naming file and tensor when there is none of that name.
  virtual TensorView tensor(std::string_view name) const = 0;
  virtual std::vector<std::string> names() const = 0;
  /// Names the bytes of all its files, wherever they lie; empty: not known, and nothing made of them may be kept.
  virtual std::string identity() const { return {}; }
  /// Drops the pages inside `bytes` (of a tensor) from this process. Reads stay valid: the pages come back from the
  /// file.
  virtual void drop_pages(std::span<const std::byte> bytes) const = 0;
};

/// How a linear is read: `exact` gives the float32 class for every format (--dtype float32), `compact` the class that
/// keeps the file's bytes (weights/block_codes.h has the table).
enum class ReadAs : uint8_t { compact, exact };

/// The tensor as a weight of the device layer. `checkpoint` is kept alive by the source.
std::shared_ptr<const device::WeightSource> make_weight_source(std::shared_ptr<const Checkpoint> checkpoint,
                                                               std::string_view name, ReadAs read_as);

/// The same rows in another order: row r of the result is row order[r] of `base`. The elements of a vector (one row)
/// are reordered instead. Throws Error naming the weight unless `order` is a permutation of them.
std::shared_ptr<const device::WeightSource> permute_rows(std::shared_ptr<const device::WeightSource> base,
                                                         std::vector<int32_t> order);

}  // namespace gristmill::weights
