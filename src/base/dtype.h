#pragma once
#include <cstddef>
#include <cstdint>

namespace gristmill {

/// Element types of activations and caches. Weights have a StorageType (base/tensor.h) instead.
enum class DType : uint8_t { f32, bf16, f16, i8, fp8_e4m3 };

constexpr size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i8:
    case DType::fp8_e4m3:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::i8:
      return "int8";
    case DType::fp8_e4m3:
      return "fp8_e4m3";
  }
  return "?";
}

}  // namespace gristmill
