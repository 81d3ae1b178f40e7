#pragma once
#include <cstdint>
#include <vector>

namespace gristmill::quantize {

/// Q = diag(random signs) * H / sqrt(n), orthogonal, H a Hadamard matrix of order n: the rotation of QuaRot (Ashkboos
/// et al. 2024). H is a Sylvester matrix, for orders that are no power of two times a Paley matrix. Immutable.
class Rotation {
 public:
  /// Throws Error when no Hadamard matrix of that order is known here. The signs depend on `seed` only.
  Rotation(int64_t size, uint64_t seed);

  int64_t size() const { return size_; }
  /// x <- x Q, `size` numbers. Thread safe.
  void apply(float* x) const;
  /// Q, row by row.
  std::vector<float> matrix() const;

 private:
  int64_t size_ = 0;
  int64_t power_ = 1;             ///< of two: H = paley (x) Sylvester matrix of this order
  int64_t order_ = 1;             ///< of the Paley part
  std::vector<int8_t> paley_{1};  ///< [order][order]
  std::vector<float> signs_;
};

}  // namespace gristmill::quantize
