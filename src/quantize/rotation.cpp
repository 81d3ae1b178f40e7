#include "quantize/rotation.h"

#include <cmath>

#include "base/error.h"

namespace gristmill::quantize {
namespace {

bool is_prime(int64_t n) {
  if (n < 2) return false;
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return true;
}

/// 1 for squares modulo q, -1 for others, 0 for 0.
std::vector<int8_t> quadratic_character(int64_t q) {
  std::vector<int8_t> chi(static_cast<size_t>(q), -1);
  chi[0] = 0;
  for (int64_t x = 1; x < q; ++x) chi[static_cast<size_t>(x * x % q)] = 1;
  return chi;
}

/// Paley's constructions (1933): order q + 1 for primes q = 3 mod 4, order 2 (q + 1) for primes q = 1 mod 4. Empty when
/// neither gives this order.
std::vector<int8_t> paley_matrix(int64_t order) {
  const bool first = order >= 4 && is_prime(order - 1) && (order - 1) % 4 == 3;
  const int64_t q = first ? order - 1 : order / 2 - 1;
  if (!first && (order % 4 != 0 || !is_prime(q) || q % 4 != 1)) return {};
  const std::vector<int8_t> chi = quadratic_character(q);
  // S: zeros on the diagonal, ones in the first row, (-)ones in the first column, chi(column - row) elsewhere.
  const auto s = [&](int64_t i, int64_t j) -> int8_t {
    if (i == 0 || j == 0) return static_cast<int8_t>(i == j ? 0 : i == 0 ? 1 : first ? -1 : 1);
    return chi[static_cast<size_t>((j - i + q) % q)];
  };
  std::vector<int8_t> h(static_cast<size_t>(order * order));
  for (int64_t i = 0; i < order; ++i)
    for (int64_t j = 0; j < order; ++j) {
      int8_t& entry = h[static_cast<size_t>(i * order + j)];
      if (first) {
        entry = static_cast<int8_t>(s(i, j) + (i == j ? 1 : 0));
        continue;
      }
      const int8_t value = s(i / 2, j / 2);
      const bool low = i % 2 != 0, right = j % 2 != 0;
      entry = value == 0 ? static_cast<int8_t>(!low && !right ? 1 : -1)
                         : static_cast<int8_t>(low && right ? -value : value);
    }
  return h;
}

uint64_t next(uint64_t* state) {  // SplitMix64 (Steele et al. 2014)
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Rotation::Rotation(int64_t size, uint64_t seed) : size_(size) {
  if (size < 1) throw Error(cat("a rotation of ", size, " dimensions does not exist"));
  int64_t power = size & -size;
  for (; power >= 1; power /= 2) {
    order_ = size / power;
    if (order_ == 1) break;
    paley_ = paley_matrix(order_);
    if (!paley_.empty()) break;
  }
  if (power < 1) throw Error(cat("no Hadamard matrix of order ", size, " is known here; leave out --quarot"));
  power_ = power;
  for (int64_t i = 0; i < size; ++i) signs_.push_back(next(&seed) >> 63 != 0 ? -1.0f : 1.0f);
}

void Rotation::apply(float* x) const {
  std::vector<double> values(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i)
    values[static_cast<size_t>(i)] = static_cast<double>(x[i] * signs_[static_cast<size_t>(i)]);
  for (int64_t part = 0; part < size_; part += power_)  // the fast Walsh-Hadamard transform of each part
    for (int64_t half = 1; half < power_; half *= 2)
      for (int64_t begin = part; begin < part + power_; begin += 2 * half)
        for (int64_t i = begin; i < begin + half; ++i) {
          double &a = values[static_cast<size_t>(i)], &b = values[static_cast<size_t>(i + half)];
          const double sum = a + b;
          b = a - b;
          a = sum;
        }
  const double factor = 1 / std::sqrt(static_cast<double>(size_));
  if (order_ == 1) {
    for (int64_t i = 0; i < size_; ++i) x[i] = static_cast<float>(values[static_cast<size_t>(i)] * factor);
    return;
  }
  for (int64_t to = 0; to < order_; ++to)
    for (int64_t i = 0; i < power_; ++i) {
      double sum = 0;
      for (int64_t from = 0; from < order_; ++from)
        sum += values[static_cast<size_t>(from * power_ + i)] * paley_[static_cast<size_t>(from * order_ + to)];
      x[to * power_ + i] = static_cast<float>(sum * factor);
    }
}

std::vector<float> Rotation::matrix() const {
  std::vector<float> all(static_cast<size_t>(size_ * size_), 0.0f);
  for (int64_t i = 0; i < size_; ++i) {
    all[static_cast<size_t>(i * size_ + i)] = 1.0f;
    apply(all.data() + i * size_);
  }
  return all;
}

}  // namespace gristmill::quantize
