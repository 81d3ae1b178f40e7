#pragma once
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::quantize {

/// A tensor that will be written: its safetensors dtype ("I8", "F32", "BF16" ...) and shape.
struct TensorPlan {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

/// Writes safetensors shards of tensors that are known beforehand, one after the other, so that nothing but the tensor
/// at hand is in memory; then the index. Files are STEM-00001-of-0000N.safetensors and STEM.safetensors.index.json; a
/// shard ends before the tensor that would reach `limit` bytes. Every failure is an Error naming the file.
class ShardWriter {
 public:
  ShardWriter(std::string folder, std::string stem, std::vector<TensorPlan> tensors, uint64_t limit);

  size_t shards() const { return starts_.size(); }
  /// The next tensor's data; tensors come in the order of the plan.
  void write(std::string_view data);
  /// Writes the index; all tensors must have been written.
  void finish();

 private:
  std::string file_name(size_t shard) const;
  void open(size_t shard);
  void close();

  std::string folder_, stem_;
  std::vector<TensorPlan> tensors_;
  std::vector<size_t> starts_;  ///< first tensor of each shard
  size_t next_ = 0, shard_ = 0;
  std::ofstream file_;
};

/// Writes a whole small file. Throws Error naming it.
void write_file(const std::string& path, std::string_view text);

}  // namespace gristmill::quantize
