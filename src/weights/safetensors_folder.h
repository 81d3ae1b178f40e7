#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace gristmill::weights {

/// The safetensors of a Hugging Face folder as one Checkpoint: the shards that NAME.safetensors.index.json lists, or
/// the only *.safetensors file. Every file is validated (weights/safetensors.h), and index and files must agree: a
/// shard that is absent and tensors that only one of them knows are an Error naming them. Thread safe after opening.
class SafetensorsFolder final : public Checkpoint {
 public:
  static std::shared_ptr<const SafetensorsFolder> open(const std::string& folder);
  ~SafetensorsFolder() override;

  std::string path() const override;
  bool contains(std::string_view name) const override;
  TensorView tensor(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::string identity() const override;
  void drop_pages(std::span<const std::byte> bytes) const override;

 private:
  struct Impl;
  explicit SafetensorsFolder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill::weights
