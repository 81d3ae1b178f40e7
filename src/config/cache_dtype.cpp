#include "config/cache_dtype.h"

#include "base/error.h"

namespace gristmill::config {

DType cache_dtype(const std::string& flag, const std::string& text) {
  if (text == "bfloat16") return DType::bf16;
  if (text == "float16" || text == "half") return DType::f16;
  if (text == "float32" || text == "float") return DType::f32;
  if (text == "int8") return DType::i8;
  if (text == "fp8" || text == "fp8_e4m3") return DType::fp8_e4m3;
  if (text == "fp8_e5m2") throw Error(cat("argument ", flag, ": fp8_e5m2 is not supported yet"));
  throw Error(cat("argument ", flag, ": invalid choice: '", text,
                  "' (choose from auto, bfloat16, float16, float32, int8, fp8, fp8_e4m3)"));
}

}  // namespace gristmill::config
