#pragma once
#include <cstdint>
#include <vector>

#include "device/program.h"

namespace gristmill::device::cpu {

/// CacheScales beside kernels that know a scale per token: a token's own scale is 1, K's scales go into the queries,
/// V's scales and offsets into the results. K's offsets add the same to all scores of a query, so that softmax does not
/// see them, and are left out there. Thread safe.
class StaticCache {
 public:
  StaticCache(const CacheScales& scales, int head_dim);

  /// Codes [head_dim] of one K/V head; returns what the cache keeps as the token's scale: 1, or NaN where a value is
  /// not finite.
  float encode_k(int head, const float* x, uint8_t* codes) const { return encode(k_, head, x, codes); }
  float encode_v(int head, const float* x, uint8_t* codes) const { return encode(v_, head, x, codes); }
  /// A query's head that reads K/V head `head`, in place: q * scale.
  void scale_query(int head, float* q) const;
  /// A result of attention to V's codes of that head, in place: (x - offset) * scale.
  void finish(int head, float* out) const;

 private:
  struct Channels {
    std::vector<float> scale, inverse, offset;
  };
  float encode(const Channels& channels, int head, const float* x, uint8_t* codes) const;

  int head_dim_;
  Channels k_, v_;
};

}  // namespace gristmill::device::cpu
