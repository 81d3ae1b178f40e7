#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace gristmill::weights {

/// One safetensors file, memory mapped and fully validated on opening: the tensors tile the data without holes or
/// overlap, and each has the bytes that its shape and dtype ask for. Every failure is an Error naming file and tensor.
/// Data need not be aligned. Thread safe after opening.
class SafetensorsFile final : public Checkpoint {
 public:
  static std::shared_ptr<const SafetensorsFile> open(const std::string& path);
  ~SafetensorsFile() override;

  std::string path() const override;
  bool contains(std::string_view name) const override;
  TensorView tensor(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::string identity() const override;
  void drop_pages(std::span<const std::byte> bytes) const override;

  /// The strings of "__metadata__".
  const std::map<std::string, std::string, std::less<>>& metadata() const;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill::weights
