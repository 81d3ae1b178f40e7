#pragma once
#include <string>

#include "base/dtype.h"

namespace gristmill::config {

/// The KV cache's element type by vLLM's name for it (bfloat16, float16, float32, int8, fp8, fp8_e4m3). Throws Error
/// naming `flag` and listing them; "auto" is the caller's.
DType cache_dtype(const std::string& flag, const std::string& text);

}  // namespace gristmill::config
