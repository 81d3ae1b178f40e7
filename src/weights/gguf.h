#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"

namespace gristmill::weights {

/// A GGUF v2/v3 file, or all parts of a split one, memory mapped and fully validated on opening: after open() no
/// length, offset or type in it can lead outside the file. Every failure is an Error naming file and key or tensor.
class GgufFile final : public Checkpoint {
 public:
  static std::shared_ptr<const GgufFile> open(const std::string& path);
  ~GgufFile() override;

  std::string path() const override;
  bool contains(std::string_view name) const override;
  TensorView tensor(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::string identity() const override;

  bool has(std::string_view key) const;
  /// Integers of any width and sign, bools too; Error when missing (without a default), of another type or out of
  /// range.
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = std::nullopt) const;
  double number(std::string_view key, std::optional<double> otherwise = std::nullopt) const;
  bool boolean(std::string_view key, std::optional<bool> otherwise = std::nullopt) const;
  std::string_view string(std::string_view key) const;
  std::string_view string(std::string_view key, std::string_view otherwise) const;
  /// Views into the mapped file.
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;
  bool is_array(std::string_view key) const;
  /// Tells the kernel that the pages are not needed any more (after packing). Mapped reads stay valid.
  void drop_pages() const;
  void drop_pages(std::span<const std::byte> bytes) const override;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill::weights
