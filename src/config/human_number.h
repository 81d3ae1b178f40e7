#pragma once
#include <cstdint>
#include <string_view>

namespace gristmill::config {

/// A whole number as people write it, e.g. 4096, 25.6k (25,600) or 4K (4,096): k, m, g, t are powers of 1000 and may
/// have a fraction, K, M, G, T powers of 1024 and may not. Throws Error naming `flag` when it is none, or does not fit.
int64_t human_number(std::string_view flag, std::string_view text);

}  // namespace gristmill::config
