#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gristmill {

/// How the elements of a tensor lie in a file: plain types, and the blocks of GGUF (spec: ggml's GGUF v3).
enum class StorageType : uint8_t {
  f32,
  f16,
  bf16,
  f64,
  i8,
  u8,
  i16,
  i32,
  i64,
  boolean,
  fp8_e4m3,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4
};

/// A named tensor inside a mapped file. `shape` is outermost first ([rows, columns] for a matrix, rows = outputs);
/// `bytes` stays valid as long as the Checkpoint that gave it, and need not be aligned.
struct TensorView {
  std::string name;
  StorageType type = StorageType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const {
    int64_t product = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) product *= shape[i];
    return product;
  }
};

}  // namespace gristmill
