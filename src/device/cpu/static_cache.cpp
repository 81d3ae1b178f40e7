#include "device/cpu/static_cache.h"

#include <cmath>
#include <limits>

namespace gristmill::device::cpu {

StaticCache::StaticCache(const CacheScales& scales, int head_dim)
    : head_dim_(head_dim), k_{scales.k_scale, {}, scales.k_offset}, v_{scales.v_scale, {}, scales.v_offset} {
  for (Channels* const each : {&k_, &v_})
    for (const float scale : each->scale) each->inverse.push_back(1.0f / scale);
}

float StaticCache::encode(const Channels& channels, int head, const float* x, uint8_t* codes) const {
  constexpr float kRounder = 0x1.8p23f;  // adding it rounds to the nearest integer, ties to even
  const int64_t first = int64_t{head} * head_dim_;
  const float* const inverse = channels.inverse.data() + first;
  const float* const offset = channels.offset.data() + first;
  bool finite = true;
  for (int d = 0; d < head_dim_; ++d) {
    finite = finite && std::isfinite(x[d]);
    const float exact = x[d] * inverse[d] + offset[d];
    const float bounded = exact > -128.0f ? (exact < 127.0f ? exact : 127.0f) : -128.0f;
    codes[d] = static_cast<uint8_t>(static_cast<int8_t>((bounded + kRounder) - kRounder));
  }
  return finite ? 1.0f : std::numeric_limits<float>::quiet_NaN();
}

void StaticCache::scale_query(int head, float* q) const {
  const float* const scale = k_.scale.data() + int64_t{head} * head_dim_;
  for (int d = 0; d < head_dim_; ++d) q[d] *= scale[d];
}

void StaticCache::finish(int head, float* out) const {
  const int64_t first = int64_t{head} * head_dim_;
  const float* const scale = v_.scale.data() + first;
  const float* const offset = v_.offset.data() + first;
  for (int d = 0; d < head_dim_; ++d) out[d] = (out[d] - offset[d]) * scale[d];
}

}  // namespace gristmill::device::cpu
